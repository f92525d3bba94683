/* Shared by simdcgm.c, which is what DCGM's functions do, and world.c, which is the
 * machine that they look at. */
#ifndef SIMDCGM_H
#define SIMDCGM_H

#include "dcgm_agent.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#include <stddef.h>

#define MOST_GPUS DCGM_MAX_NUM_DEVICES
#define MOST_SLICES 7
#define MOST_XIDS 512
#define MOST_INCIDENTS 256
#define MOST_STEPS 64
#define MOST_RULES 64
#define LINKS DCGM_NVLINK_MAX_LINKS_PER_GPU

typedef struct
{
    long long at; /* microseconds since 1970 */
    int xid;
    int instance; /* -1: the GPU, else the index of a MIG instance */
} xid_t;

typedef struct
{
    long long at;
    long long value;
} step_t;

typedef struct
{
    unsigned system, code;
    int health; /* 10 warn, 20 fail */
} incident_t;

typedef struct
{
    int slices;       /* sevenths */
    int computes;     /* compute instances on it */
    unsigned id;      /* as the driver numbers it */
    unsigned eid;     /* as DCGM does */
    unsigned compute; /* as DCGM numbers its first compute instance */
    unsigned made;    /* counts reconfigurations: part of the UUID */
} instance_t;

typedef struct
{
    int lost, mig;
    int minor; /* N of its /dev/nvidiaN */
    instance_t instances[MOST_SLICES];
    int instance_count;
    xid_t xids[MOST_XIDS];
    int xid_count;
    step_t recovery[MOST_STEPS];
    int recovery_count;
    long long ecc_sbe, ecc_dbe, remap_uncorrectable, remap_corrected, remap_failed, remap_pending, replays;
    long long retired_corrected, retired_uncorrectable, retirement_pending;
    int thermal, brake;
    int load; /* percent, -1: follows the curve */
    dcgmNvLinkLinkState_t links[LINKS];
    incident_t incidents[MOST_INCIDENTS];
    int incident_count;
} gpu_t;

/* A field that answers otherwise: of one GPU, or of all with gpu -1. */
typedef struct
{
    int gpu;
    unsigned short field;
    int status; /* what DCGM returns for it */
} rule_t;

typedef struct
{
    int gpu_count;
    gpu_t gpus[MOST_GPUS];
    char model[96], version[96], driver[96];
    long long memory_mib, seed, period_s;
    int profiling; /* 1 on, 0 the module is not loaded, -1 not supported */
    int recovery;  /* the driver knows field 1523 */
    int links;
    int disconnected;
    int start;      /* what starting or connecting returns */
    long long hung; /* until then every call waits; -1 for ever */
    long long clock; /* microseconds that the clock is off */
    unsigned mismatch; /* bits of structures that are refused as of another version */
    rule_t rules[MOST_RULES];
    int rule_count;
    unsigned generation;
    int hung_health; /* health checks wait */
    int hung_live;   /* what asks the driver itself waits */
} world_t;

enum
{
    MISMATCH_HEALTH = 1,
    MISMATCH_NVLINK = 2,
    MISMATCH_MIG = 4,
    MISMATCH_CONNECT = 8,
    MISMATCH_VERSION = 16,
};

extern world_t world;

/* clock_us is the time by the simulated machine's clock. */
long long clock_us(void);
/* world_open reads the scenario, and what happened before where the engine outlives its
 * clients. It returns 0, or -1 after saying on stderr what is wrong. */
int world_open(int outlives);
/* world_poll takes in what was appended to the control file. */
void world_poll(void);
/* world_load is how busy a GPU is at a moment, 0 to 1: a function of seed, GPU and time. */
double world_load(int gpu, long long at);
/* world_uuid writes the UUID of a GPU (instance NULL) or of a MIG device: of one of the
 * compute instances, from 0, of an instance. */
void world_uuid(char *to, size_t size, int gpu, const instance_t *instance, int compute);

#endif
