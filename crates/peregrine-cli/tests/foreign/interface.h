/* The types of the interface `Foreign`, as client and server of it need them. Numbers, offsets and
 * bounds are those of foreign.h, which `peregrine describe --format c` prints. */
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

/* Takes a person, and puts it where `to` is not NULL: `years` older, with `mark` behind the name. */
void copy_person(struct pg_reader *from, struct pg_writer *to, unsigned depth, unsigned years,
                 const char *mark);
/* A place; its measure is what `people` tells of it. */
uint16_t copy_place(struct pg_reader *from, struct pg_writer *to);
bool copy_optional_place(struct pg_reader *from, struct pg_writer *to, uint16_t *measure);

#endif
