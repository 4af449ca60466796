/* The types of the interface `Foreign`, for its client and its server. Numbers, offsets and bounds
 * are in foreign.h, which `peregrine describe --format c` prints. */
#ifndef INTERFACE_H
#define INTERFACE_H

#include "foreign.h"
#include "peregrine.h"

struct sample {
    uint64_t id;
    double value;
    int16_t at[4];
    uint32_t level;
    uint16_t colour;
    bool on;
};
void put_sample(struct pg_writer *to, const struct sample *sample);
struct sample take_sample(struct pg_reader *from);
struct sample sample_of(uint32_t number);

/* Decodes a person. If `to` is not NULL, encodes it `years` older and with `mark` after the name. */
void copy_person(struct pg_reader *from, struct pg_writer *to, unsigned depth, unsigned years,
                 const char *mark);
/* Decodes a place, and encodes it if `to` is not NULL. Returns its measure, a result of `people`. */
uint16_t copy_place(struct pg_reader *from, struct pg_writer *to);
bool copy_optional_place(struct pg_reader *from, struct pg_writer *to, uint16_t *measure);

#endif
