/* version.c - the version and the struct sizes of the library that is linked, for programs that declare its calls and
 * structs again in another language. */
#include "seeing.h"

int frugal_version(void) {
    return FRUGAL_VERSION;
}

size_t frugal_sizeof(const char *type) {
#define STRUCT(name)                                                                                                   \
    { #name, sizeof(name) }
    static const struct {
        const char *name;
        size_t bytes;
    } structs[] = {
        STRUCT(frugal_optimizer),     STRUCT(frugal_table),      STRUCT(frugal_desc),
        STRUCT(frugal_cpu_desc),      STRUCT(frugal_keys),       STRUCT(frugal_batch),
        STRUCT(frugal_gradients),     STRUCT(frugal_bags),       STRUCT(frugal_records),
        STRUCT(frugal_stats),         STRUCT(frugal_traffic),    STRUCT(frugal_save_desc),
        STRUCT(frugal_saved),         STRUCT(frugal_p2f_desc),   STRUCT(frugal_p2f_batch),
        STRUCT(frugal_p2f_entry),     STRUCT(frugal_p2f_work),   STRUCT(frugal_p2f_piece),
        STRUCT(frugal_p2f_progress),  STRUCT(frugal_pq_desc),    STRUCT(frugal_pq_batch),
        STRUCT(frugal_served),        STRUCT(frugal_serve_desc), STRUCT(frugal_serve_info),
        STRUCT(frugal_served_memory), STRUCT(frugal_row_array),  STRUCT(frugal_parcel),
        STRUCT(frugal_wire),          STRUCT(frugal_machines),   STRUCT(frugal_wire_counts),
    };
#undef STRUCT
    for (size_t i = 0; type && i < sizeof structs / sizeof *structs; i++)
        if (strcmp(type, structs[i].name) == 0) return structs[i].bytes;
    return 0;
}
