/* Planted samples as text. */
#include "trainers/clicks/write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static char *clicks_put(char *to, const char *text) {
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

static char *clicks_put_number(char *to, uint64_t number) {
    char digits[20], *at = digits + sizeof digits;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    size_t n = (size_t)(digits + sizeof digits - at);
    memcpy(to, at, n);
    return to + n;
}

/* Eight digits, as Criteo's ids have, or nine. */
static char *clicks_put_hex(char *to, uint64_t number) {
    for (int shift = number >> 32 ? 32 : 28; shift >= 0; shift -= 4) *to++ = "0123456789abcdef"[number >> shift & 15];
    return to;
}

int clicks_writer_check(const clicks_writer *writer, program_error *error) {
    const clicks_generator *size = &writer->size;
    int avazu = writer->format == CLICKS_AVAZU;
    uint32_t numbers = avazu ? 0 : 13, features = avazu ? 21 : 26;
    if (writer->format == CLICKS_GENERATED) return program_fail(error, "no format to write");
    if (writer->format == CLICKS_SCHEMA || (size->numbers == numbers && size->features == features)) return 0;
    return program_fail(error,
                        "%s has %" PRIu32 " numbers and %" PRIu32 " ids a sample, not %" PRIu32 " and %" PRIu32
                        "; generate as many, or write plain CSV",
                        avazu ? "Avazu's format" : "Criteo's format", numbers, features, size->numbers, size->features);
}

size_t clicks_writer_room(const clicks_writer *writer) {
    return 512 + 64 * ((size_t)writer->size.numbers + writer->size.features);
}

static char *clicks_put_names(const clicks_writer *writer, char *to) {
    for (uint32_t k = 0; k < writer->size.numbers; k++) to = clicks_put_number(clicks_put(to, ",I"), k + 1);
    for (uint32_t k = 0; k < writer->size.features; k++) to = clicks_put_number(clicks_put(to, ",C"), k + 1);
    return clicks_put(to, "\n");
}

size_t clicks_write_header(const clicks_writer *writer, char *text) {
    char *to = text;
    if (writer->format == CLICKS_CRITEO_CSV) to = clicks_put_names(writer, clicks_put(to, "Id,Label"));
    if (writer->format == CLICKS_SCHEMA) to = clicks_put_names(writer, clicks_put(to, "label"));
    if (writer->format == CLICKS_AVAZU)
        to = clicks_put(to, "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,"
                            "app_category,device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,"
                            "C17,C18,C19,C20,C21\n");
    return (size_t)(to - text);
}

/* YYMMDDHH, from 21 October 2014 on. */
static uint64_t clicks_write_hour(const clicks_writer *writer, uint64_t i) {
    uint64_t hour = i * 240 / writer->size.samples;
    return (141021 + hour / 24) * 100 + hour % 24;
}

size_t clicks_write_sample(const clicks_writer *writer, uint64_t i, const clicks_drawn *drawn, char *text) {
    int criteo = writer->format == CLICKS_CRITEO || writer->format == CLICKS_CRITEO_CSV;
    char separator = writer->format == CLICKS_CRITEO ? '\t' : ',', *to = text;
    if (writer->format == CLICKS_CRITEO_CSV || writer->format == CLICKS_AVAZU) {
        to = clicks_put_number(to, i);
        *to++ = separator;
    }
    *to++ = (char)('0' + drawn->label);
    if (writer->format == CLICKS_AVAZU) {
        *to++ = separator;
        to = clicks_put_number(to, clicks_write_hour(writer, i));
    }
    for (uint32_t k = 0; k < writer->size.numbers; k++) {
        *to++ = separator;
        if (drawn->numbers[k] >= 0) to = clicks_put_number(to, (uint64_t)drawn->numbers[k]);
    }
    for (uint32_t k = 0; k < writer->size.features; k++) {
        *to++ = separator;
        to = criteo ? clicks_put_hex(to, drawn->ids[k]) : clicks_put_number(to, drawn->ids[k]);
    }
    *to++ = '\n';
    return (size_t)(to - text);
}

size_t clicks_write_schema(const clicks_writer *writer, char *text) {
    char *to = clicks_put(text, "separator comma\nheader yes\nlabel label one 1 zero 0\n");
    for (uint32_t k = 0; k < writer->size.numbers; k++) to += sprintf(to, "number I%" PRIu32 " log\n", k + 1);
    for (uint32_t k = 0; k < writer->size.features; k++)
        to += sprintf(to, "id C%" PRIu32 " rows %" PRIu64 "\n", k + 1, clicks_generator_rows(&writer->size, k));
    return (size_t)(to - text);
}
