// What a browser can check of an event by itself: hashes and signatures by WebCrypto. The server still chooses what to send;
// quartermaster-audit checks without it.

// Outcome is what a check found: holds, does not hold, or could not be checked.
export interface Outcome {
  what: string
  holds: boolean | null
  why: string
}

// bytes reads base64.
export function bytes(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))
}

// unhex reads hexadecimal.
export function unhex(hex: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(hex.match(/../g) ?? [], (two) => parseInt(two, 16))
}

// same reports whether two runs of bytes are equal.
export function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((v, i) => v === b[i])
}

async function sha256(...parts: (Uint8Array | number)[]): Promise<Uint8Array<ArrayBuffer>> {
  const all = parts.map((p) => (typeof p === 'number' ? Uint8Array.of(p) : p))
  const joined = new Uint8Array(all.reduce((n, p) => n + p.length, 0))
  let at = 0
  for (const p of all) {
    joined.set(p, at)
    at += p.length
  }
  return new Uint8Array(await crypto.subtle.digest('SHA-256', joined))
}

// leafHash is the hash of a leaf (RFC 6962 §2.1), so that no leaf can be taken for a node.
export function leafHash(data: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  return sha256(0, data)
}

// rootOf returns the root that a path leads to from a leaf of a tree of some size (RFC 9162 §2.1.3.2); null if no path of
// this length does.
export async function rootOf(leaf: Uint8Array, index: bigint, size: bigint, path: Uint8Array): Promise<Uint8Array | null> {
  if (index < 0n || index >= size || path.length % 32 !== 0) return null
  let fn = index
  let sn = size - 1n
  let r = leaf
  for (let at = 0; at < path.length; at += 32) {
    const p = path.subarray(at, at + 32)
    if (sn === 0n) return null
    if (fn % 2n === 1n || fn === sn) {
      r = await sha256(1, p, r)
      while (fn % 2n === 0n && fn !== 0n) {
        fn >>= 1n
        sn >>= 1n
      }
    } else {
      r = await sha256(1, r, p)
    }
    fn >>= 1n
    sn >>= 1n
  }
  return sn === 0n ? r : null
}

// signed reports whether an Ed25519 signature is that of a message by a key; null if this browser cannot say.
export async function signed(key: Uint8Array<ArrayBuffer>, message: Uint8Array<ArrayBuffer>, signature: Uint8Array<ArrayBuffer>): Promise<boolean | null> {
  try {
    const read = await crypto.subtle.importKey('raw', key, 'Ed25519', false, ['verify'])
    return await crypto.subtle.verify('Ed25519', read, signature, message)
  } catch (e) {
    if (e instanceof DOMException && e.name === 'DataError') return false
    return null
  }
}

// Proof is the answer of "log prove".
export interface Proof {
  partition: string
  offset: number | string
  leaf: string | null
  path: string
  line: string
  line_index: number | string
  lines: number | string
  line_path: string
  head: string
  head_path: string
  checkpoint: string
}

// included checks that a record is in the log that a checkpoint stands for: record in partition, partition in head, head in
// checkpoint.
export async function included(proof: Proof, leaf: string): Promise<Outcome[]> {
  const text = new TextEncoder()
  const field = (from: string, name: RegExp) => name.exec(from)?.[1] ?? ''
  const [origin = '', size = '', root = ''] = proof.checkpoint.split('\n')
  const climb = async (what: string, data: Uint8Array, index: number | string, of: string, path: string, want: string, where: string): Promise<Outcome> => {
    const got = /^\d+$/.test(of) ? await rootOf(await leafHash(data), BigInt(index), BigInt(of), bytes(path)) : null
    return { what, holds: got !== null && same(got, bytes(want)), why: where }
  }
  const next = field(proof.line, / next=(\d+) /)
  return [
    { what: 'The proof is of these bytes', holds: proof.leaf === leaf && proof.line.startsWith(`${proof.partition} `), why: `${proof.partition}@${proof.offset}` },
    await climb('Record in its partition', bytes(proof.leaf ?? ''), proof.offset, next, proof.path, field(proof.line, / tree=(\S+)$/), `record ${proof.offset} of ${next}`),
    await climb('Partition in the head', text.encode(proof.line), proof.line_index, String(proof.lines), proof.line_path, field(proof.head, /\nroot (\S+)\n/), `line ${proof.line_index} of ${proof.lines}`),
    await climb('Head in the checkpoint', text.encode(proof.head), field(proof.head, /\nnumber (\d+)\n/), size, proof.head_path, root, `head ${field(proof.head, /\nnumber (\d+)\n/)} of ${size}`),
    { what: 'The checkpoint is of this log', holds: origin === `quartermaster.log/${field(proof.head, /\nlog (\S+)\n/)}`, why: origin },
  ]
}

// cosigned checks the signature of a checkpoint by a verifier key, as "archive verifier-key" writes it: name+hash+key.
export async function cosigned(checkpoint: string, verifier: string): Promise<Outcome> {
  const what = 'Signature of the checkpoint'
  const parts = /^(.+)\+([0-9a-f]{8})\+(.+)$/.exec(verifier.trim())
  if (!parts) return { what, holds: null, why: 'this is not a verifier key: want NAME+HASH+KEY' }
  const [, name = '', hash = '', base64 = ''] = parts
  let key: Uint8Array<ArrayBuffer>
  try {
    key = bytes(base64)
  } catch {
    return { what, holds: null, why: 'the key is not base64' }
  }
  if (key[0] !== 1 || key.length !== 33) return { what, holds: null, why: 'the key is not of Ed25519' }
  const end = checkpoint.indexOf('\n\n') + 1 // what is signed ends with one line feed
  const message = new TextEncoder().encode(checkpoint.slice(0, end))
  for (const line of checkpoint.slice(end + 1).split('\n')) {
    const [, by = '', signature = ''] = /^— (\S+) (\S+)$/.exec(line) ?? []
    if (by !== name) continue
    const all = bytes(signature)
    if (!same(all.subarray(0, 4), unhex(hash))) continue
    return { what, holds: await signed(key.slice(1), message, all.slice(4)), why: `by ${name}` }
  }
  return { what, holds: false, why: `${name} with this key has not signed it` }
}
