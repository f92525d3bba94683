/* The simulated machine.
 *
 * Two files define it. The scenario (SIMDCGM_SCENARIO) describes the machine, one command per
 * line, and schedules events: "at 30 xid 3 79" happens thirty seconds after the engine
 * started. Commands are appended to the control file (SIMDCGM_CONTROL) while it runs. A
 * journal next to it (".at") records when each line took effect, so that an engine that
 * outlives its clients reports the same history to all of them.
 */
#include "simdcgm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

world_t world;

static const char *control_path;
static long long control_at;    /* bytes of the control file that have taken effect */
static int control_line;        /* the same in lines */
static long long began;         /* when the engine started */
static long long dated_until;   /* a new engine skips the XIDs of the journal up to this time */
static char planned[64][256];   /* scheduled lines of the scenario */
static long long planned_at[64];
static const char *planned_where[64]; /* file and line of each */
static int planned_line[64];
static int planned_count;
static const char *no_number; /* the word of the current command that is not a number */

static long long wall_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

long long clock_us(void)
{
    return wall_us() + world.clock;
}

static unsigned long long mix(unsigned long long x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static double unit(unsigned long long a, unsigned long long b, unsigned long long c)
{
    return (double)(mix(mix(mix(a + 0x9e3779b97f4a7c15ULL) + b) + c) >> 11) / 9007199254740992.0;
}

double world_load(int gpu, long long at)
{
    const gpu_t *g = &world.gpus[gpu];
    if (g->load >= 0)
        return g->load / 100.0;
    long long second = at / 1000000;
    /* A GPU is idle for one period in eight. Otherwise its load swings, each GPU at its own phase. */
    if (unit(world.seed, gpu, second / world.period_s) < 0.125)
        return 0;
    double phase = (double)(second % world.period_s) / world.period_s + unit(world.seed, gpu, 1ULL << 40);
    double load = 0.6 + 0.3 * sin(6.283185307179586 * phase) + 0.1 * (unit(world.seed, gpu, second) - 0.5);
    return load < 0 ? 0 : load > 1 ? 1 : load;
}

void world_uuid(char *to, size_t size, int gpu, const instance_t *instance, int compute)
{
    unsigned long long a = mix(world.seed * 64 + gpu), b = mix(a + (instance ? instance->made * 64 + compute * 8 + instance->eid % MOST_SLICES + 1 : 0));
    snprintf(to, size, "%s-%08x-%04x-4%03x-8%03x-%012llx", instance ? "MIG" : "GPU", (unsigned)(a >> 32),
             (unsigned)(a >> 16) & 0xffff, (unsigned)b & 0xfff, (unsigned)(b >> 12) & 0xfff, b >> 16);
}

static int bad(const char *where, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "simdcgm: %s:%d: ", where, line);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return -1;
}

static void set_recovery(gpu_t *g, long long at, long long value)
{
    if (g->recovery_count == MOST_STEPS)
        memmove(g->recovery, g->recovery + 1, sizeof g->recovery[0] * --g->recovery_count);
    g->recovery[g->recovery_count++] = (step_t) { at, value };
}

/* make_instances partitions a GPU. As in the real library, instance numbers belong to
 * placements and are reused when a GPU is repartitioned; UUIDs are not. The whole GPU as one
 * instance is number 0. */
static void make_instances(int gpu, const int *slices, const int *computes, int count)
{
    gpu_t *g = &world.gpus[gpu];
    unsigned compute = (unsigned)(gpu * MOST_SLICES);
    world.generation++;
    g->instance_count = count;
    for (int i = 0; i < count; i++) {
        g->instances[i] = (instance_t) { slices[i], computes[i], slices[i] == MOST_SLICES ? 0 : (unsigned)i + 1,
                                         (unsigned)(gpu * MOST_SLICES + i), compute, world.generation };
        compute += (unsigned)computes[i];
    }
}

static long long number(const char *word)
{
    char *end;
    long long n = strtoll(word, &end, 0);
    if (end == word || *end)
        no_number = word;
    return n;
}

static int command(char *text, const char *where, int line, long long at, int fresh);

/* take executes one command. Fresh is false when an engine replays its history. */
static int take(char *text, const char *where, int line, long long at, int fresh)
{
    no_number = NULL;
    int result = command(text, where, line, at, fresh);
    return !result && no_number ? bad(where, line, "%s is not a number", no_number) : result;
}

static int command(char *text, const char *where, int line, long long at, int fresh)
{
    char *word[16] = { 0 };
    int n = 0;
    char rest[256] = { 0 };
    if (strlen(text) >= sizeof rest)
        return bad(where, line, "a command has at most 255 bytes");
    char *space = strchr(text, ' ');
    if (space)
        snprintf(rest, sizeof rest, "%s", space + 1);
    for (char *save, *w = strtok_r(text, " \t\r\n", &save); w && n < 16; w = strtok_r(NULL, " \t\r\n", &save))
        word[n++] = w;
    if (n == 0 || word[0][0] == '#')
        return 0;
    for (char *end = rest + strlen(rest); end > rest && isspace((unsigned char)end[-1]);)
        *--end = 0;
#define IS(name, args) (!strcmp(word[0], name) && n > (args))
#define NUMBER(i) (word[i] ? number(word[i]) : 0)
    /* Commands for the whole machine. */
    if (IS("gpus", 1)) {
        world.gpu_count = (int)NUMBER(1);
        return world.gpu_count < 0 || world.gpu_count > MOST_GPUS ? bad(where, line, "0 to %d GPUs", MOST_GPUS) : 0;
    }
    if (IS("model", 1))
        return snprintf(world.model, sizeof world.model, "%s", rest), 0;
    if (IS("version", 1))
        return snprintf(world.version, sizeof world.version, "%s", rest), 0;
    if (IS("driver", 1))
        return snprintf(world.driver, sizeof world.driver, "%s", rest), 0;
    if (IS("memory", 1))
        return world.memory_mib = NUMBER(1), 0;
    if (IS("seed", 1))
        return world.seed = NUMBER(1), 0;
    if (IS("period", 1))
        return world.period_s = NUMBER(1) < 1 ? 1 : NUMBER(1), 0;
    if (IS("links", 1))
        return world.links = NUMBER(1) > LINKS ? LINKS : (int)NUMBER(1), 0;
    if (IS("profiling", 1))
        return world.profiling = !strcmp(word[1], "on") ? 1 : !strcmp(word[1], "missing") ? 0 : -1, 0;
    if (IS("recoveries", 1))
        return world.recovery = !strcmp(word[1], "on"), 0;
    if (IS("start", 1))
        return world.start = (int)NUMBER(1), 0;
    if (IS("mismatch", 1)) {
        const char *names[] = { "health", "nvlink", "mig", "connect", "version" };
        for (int i = 0; i < 5; i++)
            if (!strcmp(word[1], names[i]))
                return world.mismatch |= 1u << i, 0;
        return bad(where, line, "no structure %s", word[1]);
    }
    if (IS("hang", 1) && !strcmp(word[1], "health"))
        return world.hung_health = 1, 0;
    if (IS("hang", 1) && !strcmp(word[1], "live"))
        return world.hung_live = 1, 0;
    if (IS("hang", 0))
        return world.hung = NUMBER(1) ? at + NUMBER(1) * 1000 : -1, 0;
    if (IS("resume", 0))
        return world.hung = world.hung_health = world.hung_live = world.disconnected = 0, 0;
    if (IS("disconnect", 0))
        return world.disconnected = 1, 0;
    if (IS("clock", 1)) /* seconds that the clock jumps */
        return world.clock += NUMBER(1) * 1000000, 0;
    if (IS("crash", 0)) {
        if (fresh)
            raise(SIGSEGV);
        return 0;
    }
    if (IS("print", 0)) { /* simulates a library that writes to standard output */
        if (fresh) {
            printf("%s\n", rest);
            fflush(stdout);
        }
        return 0;
    }
    if (IS("field", 2)) { /* field ID STATUS [GPU] */
        if (world.rule_count == MOST_RULES)
            return bad(where, line, "too many fields");
        world.rules[world.rule_count++] = (rule_t) { n > 3 ? (int)NUMBER(3) : -1, (unsigned short)NUMBER(1), (int)NUMBER(2) };
        return 0;
    }
    if (IS("at", 2)) {
        if (planned_count == 64)
            return bad(where, line, "at most 64 lines with a time");
        planned_at[planned_count] = NUMBER(1) * 1000000;
        planned_where[planned_count] = where;
        planned_line[planned_count] = line;
        const char *command = strchr(rest, ' ');
        snprintf(planned[planned_count++], sizeof planned[0], "%s", command ? command + 1 : "");
        return 0;
    }
    /* Commands for the GPU that the next word names. */
    if (n < 2 || !isdigit((unsigned char)word[1][0]) || NUMBER(1) >= (world.gpu_count ? world.gpu_count : MOST_GPUS))
        return bad(where, line, "unknown command, or no such GPU: %s %s", word[0], word[1] ? word[1] : "");
    int gpu = (int)NUMBER(1);
    gpu_t *g = &world.gpus[gpu];
    if (IS("xid", 2)) { /* xid GPU CODE [INSTANCE] */
        if (!fresh && at <= dated_until)
            return 0;
        if (g->xid_count == MOST_XIDS)
            memmove(g->xids, g->xids + 1, sizeof g->xids[0] * --g->xid_count);
        /* The values of a series have distinct times. */
        for (int i = 0; i < g->xid_count; i++)
            if (g->xids[i].at == at)
                at++, i = -1;
        g->xids[g->xid_count++] = (xid_t) { at, (int)NUMBER(2), n > 3 ? (int)NUMBER(3) : -1 };
        return 0;
    }
    if (IS("recovery", 2))
        return set_recovery(g, at, NUMBER(2)), 0;
    if (IS("lost", 1))
        return g->lost = 1, 0;
    if (IS("found", 1))
        return g->lost = 0, 0;
    if (IS("minor", 2))
        return g->minor = (int)NUMBER(2), 0;
    if (IS("load", 2))
        return g->load = (int)NUMBER(2), 0;
    if (IS("thermal", 2))
        return g->thermal = !strcmp(word[2], "on"), 0;
    if (IS("brake", 2))
        return g->brake = !strcmp(word[2], "on"), 0;
    if (IS("ecc", 3)) /* ecc GPU corrected|uncorrectable N */
        return *(word[2][0] == 'c' ? &g->ecc_sbe : &g->ecc_dbe) += NUMBER(3), 0;
    if (IS("replay", 2))
        return g->replays += NUMBER(2), 0;
    if (IS("remap", 3)) { /* remap GPU corrected|uncorrectable|pending|failed N */
        switch (word[2][0]) {
        case 'c': g->remap_corrected += NUMBER(3); break;
        case 'u': g->remap_uncorrectable += NUMBER(3); break;
        case 'p': g->remap_pending = NUMBER(3); break;
        case 'f': g->remap_failed = NUMBER(3); break;
        default: return bad(where, line, "remap GPU corrected|uncorrectable|pending|failed N");
        }
        return 0;
    }
    if (IS("retire", 3)) { /* retire GPU corrected|uncorrectable|pending N */
        switch (word[2][0]) {
        case 'c': g->retired_corrected += NUMBER(3); break;
        case 'u': g->retired_uncorrectable += NUMBER(3); break;
        case 'p': g->retirement_pending = NUMBER(3); break;
        default: return bad(where, line, "retire GPU corrected|uncorrectable|pending N");
        }
        return 0;
    }
    if (IS("nvlink", 3)) { /* nvlink GPU LINK up|down */
        if (NUMBER(2) < 0 || NUMBER(2) >= LINKS)
            return bad(where, line, "links are 0 to %d", LINKS - 1);
        g->links[NUMBER(2)] = !strcmp(word[3], "up") ? DcgmNvLinkLinkStateUp : DcgmNvLinkLinkStateDown;
        return 0;
    }
    if (IS("health", 4)) { /* health GPU SYSTEM CODE warn|fail */
        if (g->incident_count < MOST_INCIDENTS)
            g->incidents[g->incident_count++]
                = (incident_t) { (unsigned)NUMBER(2), (unsigned)NUMBER(3), !strcmp(word[4], "fail") ? 20 : 10 };
        return 0;
    }
    if (IS("healthy", 1))
        return g->incident_count = 0, 0;
    if (IS("mig", 2)) { /* mig GPU off | on | SLICES[:COMPUTES]... */
        int slices[MOST_SLICES], computes[MOST_SLICES], count = 0, sum = 0;
        g->mig = strcmp(word[2], "off") != 0;
        for (int i = 2; i < n && strcmp(word[2], "off") && strcmp(word[2], "on"); i++, count++) {
            char *colon = strchr(word[i], ':');
            if (colon)
                *colon = 0;
            if (count == MOST_SLICES || NUMBER(i) < 1 || (sum += (int)NUMBER(i)) > MOST_SLICES)
                return bad(where, line, "the slices of a GPU add up to at most %d", MOST_SLICES);
            slices[count] = (int)NUMBER(i);
            computes[count] = colon ? (int)number(colon + 1) : 1;
            if (computes[count] < 0 || computes[count] > slices[count])
                return bad(where, line, "an instance cannot have more compute instances than slices");
        }
        return make_instances(gpu, slices, computes, count), 0;
    }
    return bad(where, line, "unknown command or too few words: %s", word[0]);
}

static int read_scenario(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return fprintf(stderr, "simdcgm: %s: cannot be read: %s\n", path, strerror(errno)), -1;
    char text[512];
    int line = 0, result = 0;
    while (!result && fgets(text, sizeof text, f))
        result = take(text, path, ++line, 0, 1);
    fclose(f);
    return result;
}

/* control executes the complete lines of the control file from control_at on. With replay, the
 * journal tells when each took effect; otherwise they take effect now and are added to it. */
static void control(FILE *journal, int replay)
{
    FILE *f = fopen(control_path, "r");
    if (!f)
        return;
    char text[512];
    fseek(f, control_at, SEEK_SET);
    while (fgets(text, sizeof text, f) && strchr(text, '\n')) {
        long long offset = 0, at = clock_us();
        if (replay) {
            if (fscanf(journal, "%lld %lld", &offset, &at) != 2 || offset != control_at)
                break;
        } else {
            fprintf(journal, "%lld %lld\n", control_at, at);
            fflush(journal);
        }
        control_at = ftell(f);
        take(text, control_path, ++control_line, at, !replay);
    }
    fclose(f);
}

int world_open(int outlives)
{
    memset(&world, 0, sizeof world);
    world.gpu_count = 8;
    world.memory_mib = 81559;
    world.seed = 1;
    world.period_s = 600;
    world.profiling = 1;
    world.recovery = 1;
    world.links = LINKS;
    planned_count = 0;
    control_at = control_line = 0;
    snprintf(world.model, sizeof world.model, "NVIDIA H100 80GB HBM3");
    snprintf(world.version, sizeof world.version, "4.5.0");
    snprintf(world.driver, sizeof world.driver, "580.95.05");
    for (int i = 0; i < MOST_GPUS; i++) {
        world.gpus[i].load = -1;
        world.gpus[i].minor = i;
        set_recovery(&world.gpus[i], 0, 0);
        for (int l = 0; l < LINKS; l++)
            world.gpus[i].links[l] = DcgmNvLinkLinkStateUp;
    }
    const char *scenario = getenv("SIMDCGM_SCENARIO");
    if (scenario && *scenario && read_scenario(scenario))
        return -1;
    began = clock_us();
    dated_until = outlives ? 0 : began;
    for (int i = 0; i < MOST_GPUS; i++)
        for (int l = world.links; l < LINKS; l++)
            world.gpus[i].links[l] = DcgmNvLinkLinkStateNotSupported;
    control_path = getenv("SIMDCGM_CONTROL");
    if (control_path && *control_path) {
        char path[4096];
        snprintf(path, sizeof path, "%s.at", control_path);
        FILE *journal = fopen(path, "a+");
        if (!journal)
            return fprintf(stderr, "simdcgm: %s: cannot be written: %s\n", path, strerror(errno)), -1;
        flock(fileno(journal), LOCK_EX);
        fseek(journal, 0, SEEK_SET);
        long long first = 0;
        if (fscanf(journal, "began %lld", &first) != 1)
            fprintf(journal, "began %lld\n", began);
        else if (outlives)
            began = first;
        control(journal, 1);
        fclose(journal);
    } else {
        control_path = NULL;
    }
    return 0;
}

void world_poll(void)
{
    for (int i = 0; i < planned_count; i++)
        if (planned_at[i] >= 0 && clock_us() >= began + planned_at[i]) {
            char text[256];
            snprintf(text, sizeof text, "%s", planned[i]);
            take(text, planned_where[i], planned_line[i], began + planned_at[i], 1);
            planned_at[i] = -1;
        }
    if (!control_path)
        return;
    struct stat st;
    if (stat(control_path, &st) || st.st_size <= control_at)
        return;
    char path[4096];
    snprintf(path, sizeof path, "%s.at", control_path);
    FILE *journal = fopen(path, "a");
    if (!journal)
        return;
    flock(fileno(journal), LOCK_EX);
    control(journal, 0);
    fclose(journal);
}
