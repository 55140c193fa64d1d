/* A stand-in for libnvidia-ml.so.1: the functions that the meter calls, with the signatures of nvml.h.
 *
 * What it says is a script: two RTX 3090, with the figures of smi_stream.py. The first one takes 250 W, or those of the
 * file `watts` beside this library, where there is one, and counts 250 W by this machine's clock; the second one tells
 * no power of now and has no counter. The process that FAKE_APP names is on the first one, with 3 GiB. Where there is a
 * file `hang` beside it, power is never told; where there is a file `fall`, whoever asks for it falls. A call costs next
 * to nothing, which is not what a real one costs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPUS = 2 };

typedef struct gpu { const char *uuid; } *gpu_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType, nvmlReturn;
    unsigned long long value;
} nvmlFieldValue_t;

typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

static struct gpu gpus[GPUS] = {{"GPU-11111111-aaaa-bbbb-cccc-000000000001"},
                                {"GPU-22222222-aaaa-bbbb-cccc-000000000002"}};

int nvmlInit_v2(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = GPUS;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu_t *gpu)
{
    if (index >= GPUS) return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(gpu_t gpu, char *uuid, unsigned int length)
{
    if (strlen(gpu->uuid) >= length) return INSUFFICIENT_SIZE;
    strcpy(uuid, gpu->uuid);
    return SUCCESS;
}

/* A file beside this library. */
static FILE *beside(const char *name)
{
    char path[4096];
    Dl_info here;
    const char *end = dladdr((void *)beside, &here) ? strrchr(here.dli_fname, '/') : NULL;
    if (!end) return NULL;
    snprintf(path, sizeof path, "%.*s/%s", (int)(end - here.dli_fname), here.dli_fname, name);
    return fopen(path, "r");
}

static int said(const char *name)
{
    FILE *file = beside(name);
    if (file) fclose(file);
    return file != NULL;
}

static unsigned int milliwatts(gpu_t gpu)
{
    double watts = gpu == &gpus[0] ? 249.1 : 21.33;
    while (said("hang")) pause();
    if (said("fall")) abort();
    return watts * 1000 + 0.5;
}

int nvmlDeviceGetPowerUsage(gpu_t gpu, unsigned int *power)
{
    *power = milliwatts(gpu);
    return SUCCESS;
}

/* Of the fields, power of now and on average: the second GPU knows neither. */
int nvmlDeviceGetFieldValues(gpu_t gpu, int count, nvmlFieldValue_t *values)
{
    for (nvmlFieldValue_t *value = values; value < values + count; value++) {
        double watts = 250;
        FILE *file = beside("watts");
        if (file && fscanf(file, "%lf", &watts) != 1) watts = 250;
        if (file) fclose(file);
        value->nvmlReturn = gpu == &gpus[0] ? SUCCESS : NOT_SUPPORTED;
        value->valueType = 1;
        value->value = 0xabcdef0000000000ULL + (value->fieldId == 186 ? (unsigned int)(watts * 1000) : milliwatts(gpu));
    }
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimit(gpu_t gpu, unsigned int *limit)
{
    *limit = gpu == &gpus[0] ? 350000 : 230000;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementDefaultLimit(gpu_t gpu, unsigned int *limit)
{
    *limit = 350000;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(gpu_t gpu, unsigned int sensor, unsigned int *celsius)
{
    *celsius = gpu == &gpus[0] ? 64 : 41;
    return sensor ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceGetClockInfo(gpu_t gpu, unsigned int which, unsigned int *mhz)
{
    *mhz = gpu == &gpus[0] ? 1695 : 210;
    return which == 1 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMaxClockInfo(gpu_t gpu, unsigned int which, unsigned int *mhz)
{
    *mhz = which == 1 ? 2100 : 9751;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(gpu_t gpu, nvmlMemory_v2_t *memory)
{
    if (memory->version != 0x2000028) return INVALID_ARGUMENT;
    memory->total = 24576ULL << 20;
    memory->used = (gpu == &gpus[0] ? 20480ULL : 12ULL) << 20;
    return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkGeneration(gpu_t gpu, unsigned int *generation)
{
    *generation = gpu == &gpus[0] ? 4 : 1;
    return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkWidth(gpu_t gpu, unsigned int *lanes)
{
    *lanes = 16;
    return SUCCESS;
}

/* The older name of it. */
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t gpu, unsigned long long *reasons)
{
    *reasons = gpu == &gpus[0] ? 4 : 1;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(gpu_t gpu, nvmlPciInfo_t *place)
{
    strcpy(place->busId, gpu == &gpus[0] ? "00000000:01:00.0" : "00000000:21:00.0");
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return snprintf(version, length, "580.159.04") < 0;
}

int nvmlDeviceGetVbiosVersion(gpu_t gpu, char *version, unsigned int length)
{
    return snprintf(version, length, "94.02.42.00.%s", gpu == &gpus[0] ? "A9" : "B1") < 0;
}

int nvmlDeviceGetName(gpu_t gpu, char *name, unsigned int length)
{
    return snprintf(name, length, "NVIDIA GeForce RTX 3090") < 0;
}

int nvmlDeviceGetTotalEnergyConsumption(gpu_t gpu, unsigned long long *millijoules)
{
    struct timespec now;
    if (gpu != &gpus[0]) return NOT_SUPPORTED;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *millijoules = 250ULL * (1000ULL * now.tv_sec + now.tv_nsec / 1000000);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t gpu, unsigned int *count, nvmlProcessInfo_t *infos)
{
    const char *app = getenv("FAKE_APP");
    if (gpu != &gpus[0] || !app) {
        *count = 0;
        return SUCCESS;
    }
    if (*count < 1) return INSUFFICIENT_SIZE;
    *count = 1;
    infos[0] = (nvmlProcessInfo_t){atoi(app), 3ULL << 30, 0xffffffff, 0xffffffff};
    return SUCCESS;
}

const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Unknown Error"; }
