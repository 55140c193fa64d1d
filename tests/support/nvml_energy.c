/* A stand-in for libnvidia-ml.so.1: the functions of energy and of processes, with the signatures of nvml.h.
 *
 * Two GPUs; the first one spends 250 W by this machine's clock, the second one has no counter, as Pascal has none. The
 * process that FAKE_APP names is on the first one, with 3 GiB. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPUS = 2 };

typedef struct gpu { const char *uuid; } *gpu_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_t;

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
