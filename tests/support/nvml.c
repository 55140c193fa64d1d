/* A stand-in for libnvidia-ml.so.1: the functions of fans, with the signatures of nvml.h, on cards that a file holds.
 *
 * A line a card: UUID, least and most percent that it takes, the code that setting a fan ends with (0: it works), and
 * what each fan is told, 0 being the driver's own control. The file is named by FAKE_FANS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       DRIVER_NOT_LOADED = 9, CARDS = 8, FANS = 4, IDLE = 30 };

struct card {
    char uuid[64];
    unsigned least, most, fans, told[FANS];
    int refuses;
};

static struct card cards[CARDS];
static int count = -1;

static const char *file(void)
{
    const char *named = getenv("FAKE_FANS");
    return named ? named : "/dev/shm/fans";
}

int nvmlInit_v2(void)
{
    char line[256];
    FILE *state = fopen(file(), "r");
    if (!state) return DRIVER_NOT_LOADED;
    for (count = 0; count < CARDS && fgets(line, sizeof line, state);) {
        struct card *card = &cards[count];
        int at = 0, more = 0;
        if (sscanf(line, "%63s %u %u %d%n", card->uuid, &card->least, &card->most, &card->refuses, &at) != 4) continue;
        while (card->fans < FANS && sscanf(line + at, "%u%n", &card->told[card->fans], &more) == 1) {
            at += more;
            card->fans++;
        }
        count++;
    }
    fclose(state);
    return SUCCESS;
}

static int save(void)
{
    FILE *state = fopen(file(), "w");
    if (!state) return NO_PERMISSION;
    for (int number = 0; number < count; number++) {
        struct card *card = &cards[number];
        fprintf(state, "%s %u %u %d", card->uuid, card->least, card->most, card->refuses);
        for (unsigned fan = 0; fan < card->fans; fan++) fprintf(state, " %u", card->told[fan]);
        fputc('\n', state);
    }
    return fclose(state) ? NO_PERMISSION : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct card **found)
{
    if (count < 0) return UNINITIALIZED;
    for (int number = 0; number < count; number++)
        if (!strcmp(cards[number].uuid, uuid)) {
            *found = &cards[number];
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetNumFans(struct card *card, unsigned *fans)
{
    *fans = card->fans;
    return card->fans ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMinMaxFanSpeed(struct card *card, unsigned *least, unsigned *most)
{
    *least = card->least;
    *most = card->most;
    return SUCCESS;
}

static int tell(struct card *card, unsigned fan, unsigned told)
{
    if (card->refuses) return card->refuses;
    if (fan >= card->fans) return INVALID_ARGUMENT;
    card->told[fan] = told;
    return save();
}

int nvmlDeviceSetFanSpeed_v2(struct card *card, unsigned fan, unsigned percent)
{
    return percent < card->least || percent > card->most ? INVALID_ARGUMENT : tell(card, fan, percent);
}

int nvmlDeviceSetDefaultFanSpeed_v2(struct card *card, unsigned fan)
{
    return tell(card, fan, 0);
}

int nvmlDeviceGetTargetFanSpeed(struct card *card, unsigned fan, unsigned *percent)
{
    if (fan >= card->fans) return INVALID_ARGUMENT;
    *percent = card->told[fan] ? card->told[fan] : IDLE;
    return SUCCESS;
}

int nvmlDeviceGetFanSpeed_v2(struct card *card, unsigned fan, unsigned *percent)
{
    return nvmlDeviceGetTargetFanSpeed(card, fan, percent);
}

const char *nvmlErrorString(int code)
{
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    default: return "Unknown Error";
    }
}
