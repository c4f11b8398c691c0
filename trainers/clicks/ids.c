/* Vocabularies: hash tables with open addressing. */
#include "trainers/clicks/ids.h"

#include <inttypes.h>
#include <stdlib.h>

uint64_t clicks_hash_number(int64_t number) {
    char text[24], *end = text + sizeof text, *at = end;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) *--at = '-';
    return clicks_hash(at, (size_t)(end - at));
}

/* The slot of the hash, or the free slot where it would be; there always is a free one. */
static clicks_slot *clicks_slot_of(const clicks_vocabulary *v, uint64_t hash) {
    uint64_t at = hash & (v->room - 1);
    while (v->slots[at].count && v->slots[at].hash != hash) at = (at + 1) & (v->room - 1);
    return &v->slots[at];
}

static int clicks_vocabulary_open(clicks_vocabulary *v, uint64_t room, program_error *error) {
    *v = (clicks_vocabulary){.slots = calloc(room, sizeof *v->slots), .room = room};
    if (v->slots) return 0;
    *v = (clicks_vocabulary){0};
    return program_fail(error, "out of memory for a vocabulary of %" PRIu64 " ids; hash them instead", room / 2);
}

static int clicks_vocabulary_grow(clicks_vocabulary *v, program_error *error) {
    clicks_vocabulary larger;
    if (v->n > UINT32_MAX - 2) return program_fail(error, "a feature has more than 2^32 - 2 ids; hash them instead");
    if (clicks_vocabulary_open(&larger, v->room ? v->room * 2 : 64, error)) return -1;
    for (uint64_t i = 0; i < v->room; i++)
        if (v->slots[i].count) *clicks_slot_of(&larger, v->slots[i].hash) = v->slots[i];
    larger.n = v->n;
    free(v->slots);
    *v = larger;
    return 0;
}

int clicks_vocabulary_count(clicks_vocabulary *v, uint64_t hash, program_error *error) {
    if (hash == clicks_hash("", 0)) return 0;
    if (2 * v->n >= v->room && clicks_vocabulary_grow(v, error)) return -1;
    clicks_slot *slot = clicks_slot_of(v, hash);
    if (!slot->count) *slot = (clicks_slot){.hash = hash, .number = (uint32_t)v->n++};
    slot->count += slot->count < UINT32_MAX;
    return 0;
}

int clicks_vocabulary_number(clicks_vocabulary *v, uint64_t threshold, program_error *error) {
    clicks_vocabulary kept;
    uint64_t n = 0, room = 2;
    uint64_t *came = malloc((v->n + 1) * sizeof *came); /* the slots of the ids, in the order in which they came */
    if (!came) return program_fail(error, "out of memory to number %" PRIu64 " ids", v->n);
    for (uint64_t i = 0; i < v->room; i++) {
        n += v->slots[i].count && v->slots[i].count >= threshold;
        if (v->slots[i].count) came[v->slots[i].number] = i;
    }
    while (room < 2 * (n + 1)) room *= 2;
    int status = clicks_vocabulary_open(&kept, room, error);
    for (uint64_t i = 0; i < v->n && !status; i++) {
        clicks_slot slot = v->slots[came[i]];
        if (slot.count < threshold) continue;
        slot.number = (uint32_t)++kept.n;
        *clicks_slot_of(&kept, slot.hash) = slot;
    }
    free(came);
    if (status) return -1;
    free(v->slots);
    *v = kept;
    return 0;
}

uint64_t clicks_vocabulary_row(const clicks_vocabulary *v, uint64_t hash) {
    return v->room ? clicks_slot_of(v, hash)->number : 0; /* 0 in a free slot */
}

void clicks_vocabulary_free(clicks_vocabulary *v) {
    free(v->slots);
    *v = (clicks_vocabulary){0};
}
