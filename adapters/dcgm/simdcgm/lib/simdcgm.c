/* libdcgm.so.4 for machines without GPUs: the functions of DCGM that the collector calls,
 * on the simulated machine of world.c. It is compiled against the headers of the go-dcgm
 * module, so that a changed prototype or structure fails the build.
 *
 * It reproduces the surprising behaviour of the real library:
 *   - an unwatched field has status -16 and the XID field before the first XID has -14, each
 *     with the blank value of the field's type;
 *   - where the profiling module is not loaded, one of its fields in a field group makes the
 *     watch of the whole group fail with -33;
 *   - dcgmGetValuesSince_v2 fails as a whole when one device or field fails, and the values
 *     before the failure are lost;
 *   - a structure of another size or version is refused with -12;
 *   - messages of health incidents name GPUs that do not exist;
 *   - there are at most 64 groups and 64 field groups, and they are never freed automatically.
 */
#include "simdcgm.h"

#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HANDLE ((dcgmHandle_t)0x7fffff01)
#define MOST_WATCHES 16384
#define PROFILING(field) ((field) >= 1000 && (field) < 1100)

typedef struct
{
    int used, count;
    dcgmGroupEntityPair_t *entities;
} group_t;

typedef struct
{
    int used, count;
    unsigned short fields[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
} fieldgroup_t;

typedef struct
{
    dcgmGroupEntityPair_t entity;
    unsigned short field;
    long long since, every, keep;
    int watchers;
} watch_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int open_count;
static group_t groups[DCGM_MAX_NUM_GROUPS];
static fieldgroup_t fieldgroups[DCGM_MAX_NUM_FIELD_GROUPS];
static watch_t watches[MOST_WATCHES];
static int watch_count;

/* enter waits while the driver hangs, reads new commands and returns whether the call can be
 * served. Every call but the first begins with it. On success it returns with the mutex held. */
static dcgmReturn_t enter(dcgmHandle_t handle)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        if (!open_count) {
            pthread_mutex_unlock(&mutex);
            return DCGM_ST_UNINITIALIZED;
        }
        world_poll();
        if (world.hung == 0 || (world.hung > 0 && clock_us() >= world.hung))
            break;
        pthread_mutex_unlock(&mutex);
        nanosleep(&(struct timespec) { 0, 20000000 }, NULL);
    }
    world.hung = 0;
    if (handle == HANDLE && !world.disconnected)
        return DCGM_ST_OK;
    pthread_mutex_unlock(&mutex);
    return DCGM_ST_CONNECTION_NOT_VALID;
}

/* wait_while waits, with the mutex released, while a part of the driver hangs. */
static void wait_while(const int *hung)
{
    while (*hung) {
        pthread_mutex_unlock(&mutex);
        nanosleep(&(struct timespec) { 0, 20000000 }, NULL);
        pthread_mutex_lock(&mutex);
        world_poll();
    }
}

#define ENTER(handle)                    \
    do {                                 \
        dcgmReturn_t st = enter(handle); \
        if (st != DCGM_ST_OK)            \
            return st;                   \
    } while (0)
#define LEAVE(st) return pthread_mutex_unlock(&mutex), (st)

static int has_gpu(unsigned id)
{
    return id < (unsigned)world.gpu_count;
}

/* find returns the GPU of an entity, or -1. It sets the MIG instance (NULL for the GPU itself)
 * and the compute instance (-1 for none). */
static int find(dcgmGroupEntityPair_t e, const instance_t **instance, int *compute)
{
    *instance = NULL;
    *compute = -1;
    if (e.entityGroupId == DCGM_FE_GPU)
        return has_gpu(e.entityId) ? (int)e.entityId : -1;
    if (e.entityGroupId != DCGM_FE_GPU_I && e.entityGroupId != DCGM_FE_GPU_CI)
        return -1;
    for (int i = 0; i < world.gpu_count; i++)
        for (int j = 0; j < world.gpus[i].instance_count; j++) {
            const instance_t *in = &world.gpus[i].instances[j];
            unsigned nth = e.entityId - in->compute;
            if (e.entityGroupId == DCGM_FE_GPU_I ? in->eid != e.entityId : nth >= (unsigned)in->computes)
                continue;
            *instance = in;
            if (e.entityGroupId == DCGM_FE_GPU_CI)
                *compute = (int)nth;
            return i;
        }
    return -1;
}

/* whose returns whose XIDs an entity reports: -1 for the GPU's, an instance's index, -2 for
 * none. A compute instance reports those of its instance only if it is alone on it. */
static int whose(int gpu, const instance_t *in, int compute)
{
    return !in ? -1 : compute >= 0 && in->computes > 1 ? -2 : (int)(in - world.gpus[gpu].instances);
}

/* Fields. */

static const struct
{
    unsigned short id;
    char type;
} known[] = {
    { 1, DCGM_FT_STRING },    { 6, DCGM_FT_INT64 },     { 50, DCGM_FT_STRING },   { 53, DCGM_FT_STRING },
    { 54, DCGM_FT_STRING },   { 55, DCGM_FT_INT64 },    { 57, DCGM_FT_STRING },   { 67, DCGM_FT_INT64 },    { 100, DCGM_FT_INT64 },
    { 101, DCGM_FT_INT64 },   { 112, DCGM_FT_INT64 },   { 140, DCGM_FT_INT64 },   { 150, DCGM_FT_INT64 },
    { 155, DCGM_FT_DOUBLE },  { 156, DCGM_FT_INT64 },   { 202, DCGM_FT_INT64 },   { 203, DCGM_FT_INT64 },
    { 204, DCGM_FT_INT64 },   { 230, DCGM_FT_INT64 },   { 250, DCGM_FT_INT64 },   { 251, DCGM_FT_INT64 },
    { 252, DCGM_FT_INT64 },   { 310, DCGM_FT_INT64 },   { 311, DCGM_FT_INT64 },   { 312, DCGM_FT_INT64 },
    { 313, DCGM_FT_INT64 },   { 390, DCGM_FT_INT64 },   { 391, DCGM_FT_INT64 },   { 392, DCGM_FT_INT64 },
    { 393, DCGM_FT_INT64 },   { 394, DCGM_FT_INT64 },   { 395, DCGM_FT_INT64 },
    { 396, DCGM_FT_INT64 },   { 409, DCGM_FT_INT64 },   { 419, DCGM_FT_INT64 },   { 429, DCGM_FT_INT64 },
    { 439, DCGM_FT_INT64 },   { 1001, DCGM_FT_DOUBLE }, { 1002, DCGM_FT_DOUBLE }, { 1004, DCGM_FT_DOUBLE },
    { 1005, DCGM_FT_DOUBLE }, { 1523, DCGM_FT_INT64 },
};

static char type_of(unsigned short field)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == field)
            return known[i].type;
    return 0;
}

typedef struct
{
    dcgmReturn_t status;
    long long i64;
    double dbl;
    char str[DCGM_MAX_STR_LENGTH];
} value_t;

static const char *const blank_strings[] = { DCGM_STR_BLANK, DCGM_STR_NOT_FOUND, DCGM_STR_NOT_SUPPORTED,
                                             DCGM_STR_NOT_PERMISSIONED };

static void blank(value_t *v, dcgmReturn_t status)
{
    int kind = status == DCGM_ST_NOT_SUPPORTED ? 2 : status == DCGM_ST_NO_PERMISSION ? 3 : 0;
    v->status = status;
    v->i64 = DCGM_INT64_BLANK + kind;
    v->dbl = DCGM_FP64_BLANK + kind;
    snprintf(v->str, sizeof v->str, "%s", blank_strings[kind]);
}

static const xid_t *last_xid(const gpu_t *g, int instance, long long until)
{
    for (int i = g->xid_count - 1; i >= 0; i--)
        if (g->xids[i].instance == instance && g->xids[i].at <= until)
            return &g->xids[i];
    return NULL;
}

/* measure sets v to the value of a field of an entity at a time. */
static void measure(value_t *v, int gpu, const instance_t *in, int compute, unsigned short field, long long at)
{
    const gpu_t *g = &world.gpus[gpu];
    double load = world_load(in ? gpu * 8 + (int)in->id + 1 + MOST_GPUS : gpu, at);
    long long memory = in ? world.memory_mib * in->slices / 8 : world.memory_mib;
    memset(v, 0, sizeof *v);
    if (g->lost && field != 230) {
        blank(v, DCGM_ST_GPU_IS_LOST);
        return;
    }
    if (PROFILING(field) && world.profiling != 1) {
        blank(v, world.profiling == 0 ? DCGM_ST_NOT_WATCHED : DCGM_ST_NOT_SUPPORTED);
        return;
    }
    if (in && !PROFILING(field) && field != 50 && field != 54 && field != 230 && field != 250 && field != 251 && field != 252) {
        blank(v, DCGM_ST_NOT_SUPPORTED);
        return;
    }
    switch (field) {
    case 1: snprintf(v->str, sizeof v->str, "%s", world.driver); break;
    case 50: {
        static const int eighths[] = { 0, 1, 2, 4, 4, 5, 6, 8 };
        long long gb = (world.memory_mib + 1023) / 1024;
        if (in)
            snprintf(v->str, sizeof v->str, "%dg.%lldgb", in->slices, gb * eighths[in->slices] / 8);
        else
            snprintf(v->str, sizeof v->str, "%s", world.model);
        break;
    }
    case 53: snprintf(v->str, sizeof v->str, "165%06lld%04d", world.seed % 1000000, gpu); break;
    case 54: world_uuid(v->str, sizeof v->str, gpu, in, compute > 0 ? compute : 0); break;
    case 55: v->i64 = g->minor; break;
    case 57: snprintf(v->str, sizeof v->str, "00000000:%02X:00.0", 0x0f + 0x10 * gpu); break;
    case 67: v->i64 = g->mig; break;
    case 100: v->i64 = g->thermal || g->brake ? 600 : load == 0 ? 345 : 1980 - (long long)(200 * load); break;
    case 101: v->i64 = load == 0 ? 1593 : 2619; break;
    case 112: v->i64 = (load == 0) | (g->thermal ? 0x48 : 0) | (g->brake ? 0x88 : 0); break;
    case 140: v->i64 = 38 + (long long)(40 * load); break;
    case 150: v->i64 = g->thermal ? 93 : 33 + (long long)(35 * load); break;
    case 155: v->dbl = 70 + 600 * load; break;
    case 156: v->i64 = at / 1000000 * 400000 + at % 1000000 * 4 / 10; break;
    case 202: v->i64 = g->replays; break;
    case 203:
        if (g->mig)
            blank(v, DCGM_ST_NOT_SUPPORTED);
        else
            v->i64 = (long long)(100 * load + 0.5);
        break;
    case 204: v->i64 = (long long)(60 * load); break;
    case 230: {
        const xid_t *x = last_xid(g, whose(gpu, in, compute), at);
        if (x)
            v->i64 = x->xid;
        else
            blank(v, DCGM_ST_NO_DATA);
        break;
    }
    case 250: v->i64 = memory; break;
    case 251: v->i64 = memory - (long long)(memory * (0.05 + 0.8 * (load > 0))); break;
    case 252: v->i64 = (long long)(memory * (0.05 + 0.8 * (load > 0))); break;
    case 310: case 312: v->i64 = g->ecc_sbe; break;
    case 311: case 313: v->i64 = g->ecc_dbe; break;
    case 390: v->i64 = g->retired_corrected; break;
    case 391: v->i64 = g->retired_uncorrectable; break;
    case 392: v->i64 = g->retirement_pending; break;
    case 393: v->i64 = g->remap_uncorrectable; break;
    case 394: v->i64 = g->remap_corrected; break;
    case 395: v->i64 = g->remap_failed; break;
    case 396: v->i64 = g->remap_pending; break;
    case 1001: v->dbl = load; break;
    case 1002: v->dbl = 0.9 * load; break;
    case 1004: v->dbl = 0.5 * load; break;
    case 1005: v->dbl = 0.4 * load; break;
    case 1523:
        if (!world.recovery) {
            blank(v, DCGM_ST_NOT_SUPPORTED);
            break;
        }
        for (int i = 0; i < g->recovery_count; i++)
            if (g->recovery[i].at <= at)
                v->i64 = g->recovery[i].value;
        break;
    case 6: case 409: case 419: case 429: case 439: break;
    default: blank(v, DCGM_ST_UNKNOWN_FIELD);
    }
}

/* answer sets v to what the library returns for a field now: the last value, or a status
 * without one. It returns the time of the value. */
static long long answer(value_t *v, dcgmGroupEntityPair_t e, unsigned short field, const watch_t *w, int live)
{
    const instance_t *in = NULL;
    int compute = -1, gpu = e.entityGroupId == DCGM_FE_NONE ? 0 : find(e, &in, &compute);
    memset(v, 0, sizeof *v);
    if (gpu < 0 || world.gpu_count == 0) {
        blank(v, DCGM_ST_BADPARAM);
        return 0;
    }
    if (!w && !live) {
        blank(v, DCGM_ST_NOT_WATCHED);
        return 0;
    }
    long long now = clock_us(), at = now;
    if (!live && w->every > 0)
        at = now - (now - w->since) % w->every;
    for (int i = 0; i < world.rule_count; i++) {
        const rule_t *r = &world.rules[i];
        if (r->field != field || (r->gpu >= 0 && r->gpu != gpu))
            continue;
        if (r->status < 0) {
            blank(v, r->status);
            return at;
        }
        measure(v, gpu, in, compute, field, at);
        if (r->status == 1) { /* a blank value with status OK */
            blank(v, DCGM_ST_NOT_SUPPORTED);
            v->status = DCGM_ST_OK;
            return at;
        }
        return at - 120000000; /* an old value */
    }
    measure(v, gpu, in, compute, field, at);
    if (field == 230 && v->status == DCGM_ST_OK)
        at = last_xid(&world.gpus[gpu], whose(gpu, in, compute), at)->at;
    return v->status == DCGM_ST_NO_DATA ? 0 : at;
}

static void put(char *to, char type, const value_t *v)
{
    if (type == DCGM_FT_STRING)
        snprintf(to, DCGM_MAX_STR_LENGTH, "%s", v->str);
    else if (type == DCGM_FT_DOUBLE)
        memcpy(to, &v->dbl, sizeof v->dbl);
    else
        memcpy(to, &v->i64, sizeof v->i64);
}

/* Start and end. */

#ifndef WITHOUT_VERSION
dcgmReturn_t dcgmVersionInfo(dcgmVersionInfo_t *info)
{
    if (info->version != dcgmVersionInfo_version2)
        return DCGM_ST_VER_MISMATCH;
    if (!open_count && world_open(0))
        return DCGM_ST_GENERIC_ERROR;
    if (world.mismatch & MISMATCH_VERSION)
        return DCGM_ST_VER_MISMATCH;
    snprintf(info->rawBuildInfoString, sizeof info->rawBuildInfoString,
             "version:%s;arch:simulated;buildtype:Release;buildid:0;builddate:2026-01-01;commit:;branch:;buildplatform:", world.version);
    return DCGM_ST_OK;
}
#endif

dcgmReturn_t dcgmInit(void)
{
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmShutdown(void)
{
    return DCGM_ST_OK;
}

static dcgmReturn_t start(int outlives, dcgmHandle_t *handle)
{
    pthread_mutex_lock(&mutex);
    if (world_open(outlives))
        LEAVE(DCGM_ST_INIT_ERROR);
    if (world.start)
        LEAVE((dcgmReturn_t)world.start);
    watch_count = 0;
    memset(groups, 0, sizeof groups);
    memset(fieldgroups, 0, sizeof fieldgroups);
    open_count = 1;
    *handle = HANDLE;
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t mode, dcgmHandle_t *handle)
{
    (void)mode;
    return start(0, handle);
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t handle)
{
    ENTER(handle);
    open_count = 0;
    LEAVE(DCGM_ST_OK);
}

/* listens reports whether something accepts connections at HOST:PORT. */
static int listens(const char *address)
{
    char host[256];
    snprintf(host, sizeof host, "%s", *address == '[' ? address + 1 : address);
    char *port = strrchr(host, ':');
    if (!port)
        return 0;
    *port++ = 0;
    if (*address == '[' && port - host > 1)
        port[-2] = 0;
    struct addrinfo *to = NULL, want = { .ai_socktype = SOCK_STREAM };
    if (getaddrinfo(host, port, &want, &to))
        return 0;
    int fd = socket(to->ai_family, SOCK_STREAM, 0), ok = fd >= 0 && !connect(fd, to->ai_addr, to->ai_addrlen);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    return ok;
}

/* Connecting fails unless the path exists or something listens at the address, as with the
 * real library. All addresses lead to the same machine. The address is recorded next to the
 * control file. */
dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *params, dcgmHandle_t *handle)
{
    struct stat st;
    if (params->version != dcgmConnectV2Params_version2)
        return DCGM_ST_VER_MISMATCH;
    const char *control = getenv("SIMDCGM_CONTROL");
    char path[4096];
    snprintf(path, sizeof path, "%s.connects", control ? control : "");
    FILE *log = control ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s %s\n", params->addressIsUnixSocket ? "unix" : "tcp", address);
        fclose(log);
    }
    if (params->addressIsUnixSocket ? stat(address, &st) : !listens(address))
        return DCGM_ST_CONNECTION_NOT_VALID;
    dcgmReturn_t result = start(1, handle);
    return result == DCGM_ST_OK && world.mismatch & MISMATCH_CONNECT ? DCGM_ST_VER_MISMATCH : result;
}

dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle)
{
    return dcgmStopEmbedded(handle);
}

/* What there is. */

dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t handle, dcgm_field_entity_group_t group, dcgm_field_eid_t *to,
                                        int *count, unsigned int flags)
{
    (void)flags;
    ENTER(handle);
    int n = 0, room = *count;
    for (int i = 0; i < world.gpu_count; i++) {
        if (group == DCGM_FE_GPU) {
            if (n < room)
                to[n] = (unsigned)i;
            n++;
        } else if (group == DCGM_FE_GPU_I || group == DCGM_FE_GPU_CI) {
            for (int j = 0; j < world.gpus[i].instance_count; j++) {
                const instance_t *in = &world.gpus[i].instances[j];
                for (int k = 0; k < (group == DCGM_FE_GPU_I ? 1 : in->computes); k++, n++)
                    if (n < room)
                        to[n] = group == DCGM_FE_GPU_I ? in->eid : in->compute + (unsigned)k;
            }
        }
    }
    *count = n;
    LEAVE(n > room ? DCGM_ST_INSUFFICIENT_SIZE : DCGM_ST_OK);
}

dcgmReturn_t dcgmGetGpuStatus(dcgmHandle_t handle, unsigned int gpu, DcgmEntityStatus_t *status)
{
    ENTER(handle);
    if (!has_gpu(gpu))
        LEAVE(DCGM_ST_BADPARAM);
    *status = world.gpus[gpu].lost ? DcgmEntityStatusLost : DcgmEntityStatusOk;
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t handle, dcgmMigHierarchy_v2 *h)
{
    ENTER(handle);
    if (h->version != dcgmMigHierarchy_version2 || world.mismatch & MISMATCH_MIG)
        LEAVE(DCGM_ST_VER_MISMATCH);
    h->count = 0;
    for (int i = 0; i < world.gpu_count; i++)
        for (int j = 0; j < world.gpus[i].instance_count; j++) {
            const instance_t *in = &world.gpus[i].instances[j];
            /* The driver's number of the profile: nvml.h, NVML_GPU_INSTANCE_PROFILE_*. */
            static const unsigned profiles[] = { 0, 0, 1, 2, 3, 0, 7, 4 };
            for (int k = -1; k < in->computes; k++) {
                dcgmMigHierarchyInfo_v2 *to = &h->entityList[h->count++];
                int compute = k >= 0;
                memset(to, 0, sizeof *to);
                to->entity = (dcgmGroupEntityPair_t) { compute ? DCGM_FE_GPU_CI : DCGM_FE_GPU_I, compute ? in->compute + (unsigned)k : in->eid };
                to->parent = (dcgmGroupEntityPair_t) { compute ? DCGM_FE_GPU_I : DCGM_FE_GPU, compute ? in->eid : (unsigned)i };
                world_uuid(to->info.gpuUuid, sizeof to->info.gpuUuid, i, NULL, 0);
                to->info.nvmlGpuIndex = (unsigned)i;
                to->info.nvmlInstanceId = in->id;
                to->info.nvmlComputeInstanceId = (unsigned)k;
                to->info.nvmlMigProfileId = profiles[in->slices];
                to->info.nvmlProfileSlices = (unsigned)in->slices;
            }
        }
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetNvLinkLinkStatus(dcgmHandle_t handle, dcgmNvLinkStatus_v4 *s)
{
    ENTER(handle);
    if (s->version != dcgmNvLinkStatus_version4 || world.mismatch & MISMATCH_NVLINK)
        LEAVE(DCGM_ST_VER_MISMATCH);
    s->numGpus = (unsigned)world.gpu_count;
    s->numNvSwitches = 0;
    for (int i = 0; i < world.gpu_count; i++) {
        s->gpus[i].entityId = (unsigned)i;
        for (int l = 0; l < LINKS; l++)
            s->gpus[i].linkState[l] = world.gpus[i].links[l];
    }
    LEAVE(DCGM_ST_OK);
}

/* Groups. */

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t handle, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *to)
{
    (void)type;
    (void)name;
    ENTER(handle);
    for (unsigned i = 0; i < DCGM_MAX_NUM_GROUPS; i++)
        if (!groups[i].used) {
            groups[i] = (group_t) { 1, 0, NULL };
            *to = i + 2; /* 0 and 1 are reserved by the library */
            LEAVE(DCGM_ST_OK);
        }
    LEAVE(DCGM_ST_MAX_LIMIT);
}

static group_t *group_of(dcgmGpuGrp_t id)
{
    return id >= 2 && id < DCGM_MAX_NUM_GROUPS + 2 && groups[id - 2].used ? &groups[id - 2] : NULL;
}

dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t handle, dcgmGpuGrp_t id, dcgm_field_entity_group_t entityGroup, dcgm_field_eid_t entity)
{
    ENTER(handle);
    group_t *g = group_of(id);
    const instance_t *in;
    int compute;
    dcgmGroupEntityPair_t e = { entityGroup, entity };
    if (!g)
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    if (find(e, &in, &compute) < 0)
        LEAVE(DCGM_ST_BADPARAM);
    if (g->count == DCGM_GROUP_MAX_ENTITIES_V2)
        LEAVE(DCGM_ST_MAX_LIMIT);
    g->entities = realloc(g->entities, sizeof *g->entities * (size_t)(g->count + 1));
    g->entities[g->count++] = e;
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t handle, dcgmGpuGrp_t id)
{
    ENTER(handle);
    group_t *g = group_of(id);
    if (!g)
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    free(g->entities);
    *g = (group_t) { 0 };
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int count, const unsigned short *fields, const char *name, dcgmFieldGrp_t *to)
{
    (void)name;
    ENTER(handle);
    if (count < 1 || count > DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP)
        LEAVE(DCGM_ST_BADPARAM);
    for (int i = 0; i < count; i++)
        if (!type_of(fields[i]))
            LEAVE(DCGM_ST_UNKNOWN_FIELD);
    for (unsigned i = 0; i < DCGM_MAX_NUM_FIELD_GROUPS; i++)
        if (!fieldgroups[i].used) {
            fieldgroups[i].used = 1;
            fieldgroups[i].count = count;
            memcpy(fieldgroups[i].fields, fields, sizeof *fields * (size_t)count);
            *to = i + 1;
            LEAVE(DCGM_ST_OK);
        }
    LEAVE(DCGM_ST_MAX_LIMIT);
}

static fieldgroup_t *fieldgroup_of(dcgmFieldGrp_t id)
{
    return id >= 1 && id <= DCGM_MAX_NUM_FIELD_GROUPS && fieldgroups[id - 1].used ? &fieldgroups[id - 1] : NULL;
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t handle, dcgmFieldGrp_t id)
{
    ENTER(handle);
    fieldgroup_t *f = fieldgroup_of(id);
    if (!f)
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    f->used = 0;
    LEAVE(DCGM_ST_OK);
}

/* Watches. */

static watch_t *watch_of(dcgmGroupEntityPair_t e, unsigned short field)
{
    if (field == 1 || field == 6)
        e = (dcgmGroupEntityPair_t) { DCGM_FE_NONE, 0 };
    for (int i = 0; i < watch_count; i++)
        if (watches[i].field == field && watches[i].entity.entityGroupId == e.entityGroupId && watches[i].entity.entityId == e.entityId)
            return &watches[i];
    return NULL;
}

dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long every, double keep, int samples)
{
    (void)samples;
    ENTER(handle);
    group_t *g = group_of(group);
    fieldgroup_t *f = fieldgroup_of(fields);
    if (!g || !f)
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    for (int j = 0; j < f->count; j++)
        if (PROFILING(f->fields[j]) && world.profiling != 1)
            LEAVE(world.profiling == 0 ? DCGM_ST_MODULE_NOT_LOADED : DCGM_ST_PROFILING_NOT_SUPPORTED);
    for (int i = 0; i < g->count; i++)
        for (int j = 0; j < f->count; j++) {
            watch_t *w = watch_of(g->entities[i], f->fields[j]);
            if (w && w->watchers++)
                continue;
            if (!w) {
                if (watch_count == MOST_WATCHES)
                    LEAVE(DCGM_ST_MEMORY);
                w = &watches[watch_count++];
            }
            *w = (watch_t) { g->entities[i], f->fields[j], clock_us(), every, (long long)(keep * 1e6), 1 };
            if (w->field == 1 || w->field == 6)
                w->entity = (dcgmGroupEntityPair_t) { DCGM_FE_NONE, 0 };
        }
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields)
{
    ENTER(handle);
    group_t *g = group_of(group);
    fieldgroup_t *f = fieldgroup_of(fields);
    if (!g || !f)
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    for (int i = 0; i < g->count; i++)
        for (int j = 0; j < f->count; j++) {
            watch_t *w = watch_of(g->entities[i], f->fields[j]);
            if (w && w->watchers)
                w->watchers--;
        }
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t handle, int wait)
{
    (void)wait;
    ENTER(handle);
    LEAVE(DCGM_ST_OK);
}

/* Values. */

dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t handle, dcgmGroupEntityPair_t entities[], unsigned int entity_count,
                                         unsigned short fields[], unsigned int field_count, unsigned int flags,
                                         dcgmFieldValue_v2 values[])
{
    ENTER(handle);
    if (flags & DCGM_FV_FLAG_LIVE_DATA)
        wait_while(&world.hung_live);
    for (unsigned i = 0; i < entity_count; i++)
        for (unsigned j = 0; j < field_count; j++) {
            dcgmFieldValue_v2 *to = &values[i * field_count + j];
            char type = type_of(fields[j]);
            value_t v;
            const watch_t *w = watch_of(entities[i], fields[j]);
            if (!type)
                LEAVE(DCGM_ST_UNKNOWN_FIELD);
            to->version = dcgmFieldValue_version2;
            to->entityGroupId = entities[i].entityGroupId;
            to->entityId = entities[i].entityId;
            to->fieldId = fields[j];
            to->fieldType = (unsigned short)type;
            to->ts = answer(&v, entities[i], fields[j], w && w->watchers ? w : NULL, flags & DCGM_FV_FLAG_LIVE_DATA);
            to->status = v.status;
            put(to->value.blob, type, &v);
        }
    LEAVE(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long since,
                                   long long *next, dcgmFieldValueEntityEnumeration_f tell, void *user)
{
    ENTER(handle);
    *next = since;
    group_t *g = group_of(group);
    fieldgroup_t *f = fieldgroup_of(fields);
    if (!g || !f)
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    long long now = clock_us();
    for (int i = 0; i < g->count; i++)
        for (int j = 0; j < f->count; j++) {
            const watch_t *w = watch_of(g->entities[i], f->fields[j]);
            const instance_t *in;
            int compute, gpu = find(g->entities[i], &in, &compute);
            if (gpu < 0)
                LEAVE(DCGM_ST_BADPARAM);
            if (!w || !w->watchers)
                LEAVE(DCGM_ST_NOT_WATCHED);
            for (int r = 0; r < world.rule_count; r++)
                if (world.rules[r].field == w->field && world.rules[r].status < 0 && (world.rules[r].gpu < 0 || world.rules[r].gpu == gpu))
                    LEAVE((dcgmReturn_t)world.rules[r].status);
            long long from = now - w->keep > since ? now - w->keep : since;
            dcgmFieldValue_v1 to = { .version = dcgmFieldValue_version1, .fieldId = w->field,
                                     .fieldType = (unsigned short)type_of(w->field) };
            value_t v = { 0 };
            if (w->field == 230) {
                const gpu_t *machine = &world.gpus[gpu];
                int mine = whose(gpu, in, compute);
                /* Without a value the driver's last word stands: that the device is gone. */
                if (machine->lost && !last_xid(machine, mine, now))
                    LEAVE(DCGM_ST_GPU_IS_LOST);
                for (int k = 0; k < machine->xid_count; k++) {
                    const xid_t *x = &machine->xids[k];
                    if (x->instance != mine || x->at < from || x->at > now)
                        continue;
                    to.ts = x->at;
                    v.i64 = x->xid;
                    put(to.value.blob, (char)to.fieldType, &v);
                    tell(g->entities[i].entityGroupId, g->entities[i].entityId, &to, 1, user);
                }
                continue;
            }
            if (world.gpus[gpu].lost)
                LEAVE(DCGM_ST_GPU_IS_LOST);
            long long at = w->since;
            if (w->every > 0 && at < from)
                at += (from - at + w->every - 1) / w->every * w->every;
            for (; at <= now; at += w->every > 0 ? w->every : now + 1) {
                measure(&v, gpu, in, compute, w->field, at);
                to.ts = at;
                to.status = v.status;
                put(to.value.blob, (char)to.fieldType, &v);
                tell(g->entities[i].entityGroupId, g->entities[i].entityId, &to, 1, user);
            }
        }
    *next = now + 1;
    LEAVE(DCGM_ST_OK);
}

/* Health. */

static dcgmHealthSystems_t watched_systems;

dcgmReturn_t dcgmHealthSet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthSystems_t systems)
{
    ENTER(handle);
    if (!group_of(group))
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    watched_systems = systems;
    LEAVE(DCGM_ST_OK);
}

#ifndef WITHOUT_HEALTH
dcgmReturn_t dcgmHealthCheck(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthResponse_t *response)
{
    ENTER(handle);
    wait_while(&world.hung_health);
    group_t *g = group_of(group);
    if (response->version != dcgmHealthResponse_version5 || world.mismatch & MISMATCH_HEALTH)
        LEAVE(DCGM_ST_VER_MISMATCH);
    if (!g)
        LEAVE(DCGM_ST_NOT_CONFIGURED);
    response->overallHealth = DCGM_HEALTH_RESULT_PASS;
    response->incidentCount = 0;
    for (int i = 0; i < g->count; i++) {
        dcgmGroupEntityPair_t e = g->entities[i];
        if (e.entityGroupId != DCGM_FE_GPU || !has_gpu(e.entityId))
            continue;
        for (int j = 0; j < world.gpus[e.entityId].incident_count && response->incidentCount < DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2; j++) {
            const incident_t *in = &world.gpus[e.entityId].incidents[j];
            if (!(watched_systems & in->system))
                continue;
            dcgmIncidentInfo_t *to = &response->incidents[response->incidentCount++];
            memset(to, 0, sizeof *to);
            to->system = (dcgmHealthSystems_t)in->system;
            to->health = (dcgmHealthWatchResults_t)in->health;
            to->error.code = in->code;
            to->entityInfo = e;
            snprintf(to->error.msg, sizeof to->error.msg, "GPU 2390549520 had an incident with code %u\n", in->code);
            if (in->health > (int)response->overallHealth)
                response->overallHealth = to->health;
        }
    }
    LEAVE(DCGM_ST_OK);
}
#endif

const char *errorString(dcgmReturn_t result)
{
    switch (result) {
    case DCGM_ST_OK: return "Success";
    case DCGM_ST_BADPARAM: return "Bad parameter passed to function";
    case DCGM_ST_GENERIC_ERROR: return "Generic unspecified error";
    case DCGM_ST_MEMORY: return "Out of memory error";
    case DCGM_ST_NOT_CONFIGURED: return "Setting not configured";
    case DCGM_ST_NOT_SUPPORTED: return "This request is not supported";
    case DCGM_ST_INIT_ERROR: return "DCGM initialization error";
    case DCGM_ST_NVML_ERROR: return "Error with NVML";
    case DCGM_ST_UNINITIALIZED: return "DCGM was not initialized";
    case DCGM_ST_VER_MISMATCH: return "API version mismatch";
    case DCGM_ST_UNKNOWN_FIELD: return "Unknown field";
    case DCGM_ST_NO_DATA: return "No data is available";
    case DCGM_ST_NOT_WATCHED: return "This field is not being watched";
    case DCGM_ST_NO_PERMISSION: return "No permission";
    case DCGM_ST_GPU_IS_LOST: return "GPU is lost";
    case DCGM_ST_CONNECTION_NOT_VALID: return "The connection to the host engine is not valid any longer";
    case DCGM_ST_MAX_LIMIT: return "Max limit reached for the object";
    case DCGM_ST_LIBRARY_NOT_FOUND: return "A library could not be found";
    case DCGM_ST_REQUIRES_ROOT: return "Host engine is running as non-root";
    case DCGM_ST_MODULE_NOT_LOADED: return "This request is serviced by a module of DCGM that is not currently loaded";
    case DCGM_ST_PROFILING_NOT_SUPPORTED: return "Profiling is not supported for this group of GPUs or GPU";
    case DCGM_ST_NVML_NOT_LOADED: return "Cannot perform the requested operation because NVML isn't loaded";
    case DCGM_ST_NVML_DRIVER_TIMEOUT: return "Cannot perform the requested operation because of a driver timeout";
    default: return "Unknown error";
    }
}
