/* Shared by simdcgm.c, which implements DCGM's functions, and world.c, which simulates the
 * machine. */
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
    unsigned id;      /* the driver's number */
    unsigned eid;     /* DCGM's number */
    unsigned compute; /* DCGM's number of its first compute instance */
    unsigned made;    /* generation of the configuration, part of the UUID */
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
    int load; /* percent; -1: follows the curve */
    dcgmNvLinkLinkState_t links[LINKS];
    incident_t incidents[MOST_INCIDENTS];
    int incident_count;
} gpu_t;

/* An override of a field's answer, for one GPU, or for all with gpu -1. */
typedef struct
{
    int gpu;
    unsigned short field;
    int status; /* < 0: DCGM's status; 1: a blank value with status OK; 2: an old value */
} rule_t;

typedef struct
{
    int gpu_count;
    gpu_t gpus[MOST_GPUS];
    char model[96], version[96], driver[96];
    long long memory_mib, seed, period_s;
    int profiling; /* 1 on, 0 the module is not loaded, -1 not supported */
    int recovery;  /* the driver supports field 1523 */
    int links;
    int disconnected;
    int start;      /* what starting or connecting returns */
    long long hung; /* every call waits until this time; -1: for ever */
    long long clock; /* error of the clock, microseconds */
    unsigned mismatch; /* structures refused for their version, bits of MISMATCH_* */
    rule_t rules[MOST_RULES];
    int rule_count;
    unsigned generation;
    int hung_health; /* health checks wait */
    int hung_live;   /* calls that query the driver directly wait */
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

/* clock_us returns the time by the simulated machine's clock. */
long long clock_us(void);
/* world_open reads the scenario and replays the journal. With outlives, the engine outlives its
 * clients. It returns 0, or -1 after reporting the error on stderr. */
int world_open(int outlives);
/* world_poll executes the scheduled commands that are due and the new ones of the control file. */
void world_poll(void);
/* world_load returns the load of a GPU, 0 to 1. It depends only on seed, GPU and time. */
double world_load(int gpu, long long at);
/* world_uuid writes the UUID of a GPU (instance NULL) or of a MIG device, given by instance and
 * compute instance (from 0). */
void world_uuid(char *to, size_t size, int gpu, const instance_t *instance, int compute);

#endif
