// The key of this browser signs decisions. WebCrypto makes it so that no script can read its private half, and the browser
// keeps it in IndexedDB. An admin registers its public half as that of an operator.

const database = 'quartermaster'
const store = 'keys'

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(database, 1)
    request.onupgradeneeded = () => request.result.createObjectStore(store)
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(new Error('this browser keeps nothing for this site', { cause: request.error }))
  })
}

async function on<T>(mode: IDBTransactionMode, act: (keys: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const db = await open()
  try {
    return await new Promise<T>((resolve, reject) => {
      const request = act(db.transaction(store, mode).objectStore(store))
      request.onsuccess = () => resolve(request.result)
      request.onerror = () => reject(new Error('the key of this browser could not be read', { cause: request.error }))
    })
  } finally {
    db.close()
  }
}

export interface Key {
  pair: CryptoKeyPair
  shown: string // the public half: 32 bytes in base64
}

// kept returns the key of this browser, null if it has none.
export async function kept(): Promise<Key | null> {
  const pair = (await on('readonly', (keys) => keys.get('decide') as IDBRequest<CryptoKeyPair | undefined>)) ?? null
  return pair && { pair, shown: await shown(pair) }
}

// make makes a key and keeps it, instead of one that was there.
export async function make(): Promise<Key> {
  const pair = (await crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify'])) as CryptoKeyPair
  await on('readwrite', (keys) => keys.put(pair, 'decide'))
  return { pair, shown: await shown(pair) }
}

export async function forget(): Promise<void> {
  await on('readwrite', (keys) => keys.delete('decide'))
}

async function shown(pair: CryptoKeyPair): Promise<string> {
  return base64(await crypto.subtle.exportKey('raw', pair.publicKey))
}

// sign signs a message, both in base64.
export async function sign(key: Key, message: string): Promise<string> {
  return base64(await crypto.subtle.sign('Ed25519', key.pair.privateKey, bytes(message)))
}

function base64(of: ArrayBuffer): string {
  return btoa(String.fromCharCode(...new Uint8Array(of)))
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
}
