// An OpenID provider of another make, for tests of logins: oidc-provider. Whoever comes logs in as ana, who is in the
// groups finance and ml, and consents to everything. Its keys are new at each start.
//
//   node idp.mjs PORT REDIRECT_URI...
//
// It is for tests alone: everybody may read its secret below.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import http from 'node:http';
import Provider from 'oidc-provider';

const [port, ...redirects] = process.argv.slice(2);
const issuer = `http://localhost:${port}`;
const groups = ['finance', 'ml'];
const audience = 'quartermaster';

const key = (type, options, alg) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), use: 'sig', alg, kid: randomBytes(8).toString('hex'),
});

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'quartermaster-cli', token_endpoint_auth_method: 'none', redirect_uris: [], response_types: [],
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'], application_type: 'native',
    },
    {
      client_id: 'quartermaster-web', client_secret: 'of tests & alone', redirect_uris: redirects, grant_types: ['authorization_code'],
      id_token_signed_response_alg: 'ES256', application_type: redirects.some((r) => r.startsWith('http:')) ? 'native' : 'web',
    },
    {
      client_id: 'quartermaster-service', client_secret: 'of tests & alone', redirect_uris: [], response_types: [], grant_types: ['client_credentials'],
    },
  ],
  jwks: { keys: [key('rsa', { modulusLength: 2048 }, 'RS256'), key('ec', { namedCurve: 'P-256' }, 'ES256')] },
  cookies: { keys: [randomBytes(32).toString('hex')] },
  scopes: ['openid', 'offline_access', 'groups'],
  claims: { openid: ['sub'], groups: ['groups'] },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, groups }) }),
  extraTokenClaims: (ctx, token) => (token.accountId ? { groups } : undefined),
  pkce: { required: () => true },
  ttl: { AccessToken: 300, ClientCredentials: 300, IdToken: 300, Interaction: 300, Session: 3600, Grant: 3600, DeviceCode: 300, RefreshToken: 3600 },
  rotateRefreshToken: true,
  features: {
    devInteractions: { enabled: false },
    deviceFlow: { enabled: true },
    clientCredentials: { enabled: true },
    userinfo: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (ctx, client) => (client.clientId === 'quartermaster-web' ? [] : `urn:${audience}`),
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: 'groups', audience, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } }),
    },
  },
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
});

const server = http.createServer(async (req, res) => {
  if (!req.url.startsWith('/interaction/')) {
    provider.callback()(req, res);
    return;
  }
  try {
    const { prompt, params, grantId } = await provider.interactionDetails(req, res);
    if (prompt.name === 'login') {
      await provider.interactionFinished(req, res, { login: { accountId: 'ana' } });
      return;
    }
    const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId: 'ana', clientId: params.client_id });
    grant.addOIDCScope('openid offline_access groups');
    grant.addResourceScope(`urn:${audience}`, 'groups');
    await provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
  } catch (err) {
    res.writeHead(500).end(String(err));
  }
});
server.listen(Number(port), '127.0.0.1', () => console.log(`issuer ${issuer}`));
