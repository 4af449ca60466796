/* The types of the interface `Foreign`. */
#include "interface.h"

#include <string.h>

#define DEPTH_MAX 256

/* The offsets from the generated header leave no gap between fields. Therefore a plain struct is
 * encoded as its fields in order, both in a head and in a block. */
_Static_assert(FOREIGN_SAMPLE_SIZE == 32 && FOREIGN_SAMPLE_ALIGN == 8 &&
                   FOREIGN_SAMPLE_ID_AT == 0 && FOREIGN_SAMPLE_VALUE_AT == 8 &&
                   FOREIGN_SAMPLE_AT_AT == 16 && FOREIGN_SAMPLE_LEVEL_AT == 24 &&
                   FOREIGN_SAMPLE_COLOUR_AT == 28 && FOREIGN_SAMPLE_ON_AT == 30 &&
                   FOREIGN_SAMPLE_PAD_AT == 31 && FOREIGN_COLOUR_SIZE == 2,
               "a sample has another layout");

void put_sample(struct pg_writer *to, const struct sample *sample) {
    pg_align(to, FOREIGN_SAMPLE_ALIGN);
    pg_put(to, sample->id, 8);
    pg_put_f64(to, sample->value);
    for (int i = 0; i < 4; i++) pg_put(to, (uint16_t)sample->at[i], 2);
    pg_put(to, sample->level, 4);
    pg_put(to, sample->colour, FOREIGN_COLOUR_SIZE);
    pg_put(to, sample->on, 1);
    pg_put(to, 0, 1);
}

struct sample take_sample(struct pg_reader *from) {
    struct sample sample;
    pg_take_align(from, FOREIGN_SAMPLE_ALIGN);
    sample.id = (uint64_t)pg_take(from, 8);
    sample.value = pg_take_f64(from);
    for (int i = 0; i < 4; i++) sample.at[i] = (int16_t)(uint16_t)pg_take(from, 2);
    sample.level = (uint32_t)pg_take(from, 4);
    sample.colour = (uint16_t)pg_take(from, FOREIGN_COLOUR_SIZE);
    if (sample.colour != FOREIGN_COLOUR_RED && sample.colour != FOREIGN_COLOUR_DEEP_BLUE)
        from->bad = true;
    sample.on = pg_take_bool(from);
    pg_take(from, 1);
    return sample;
}

struct sample sample_of(uint32_t number) {
    int16_t n = (int16_t)number;
    return (struct sample){.id = (uint64_t)number << 33 | 7, .value = number * 0.5,
                           .at = {n, (int16_t)-n, 1, -2}, .level = number,
                           .colour = number % 2 ? FOREIGN_COLOUR_DEEP_BLUE : FOREIGN_COLOUR_RED,
                           .on = number % 3 == 0};
}

static void put_if(struct pg_writer *to, pg_u128 value, size_t bytes) {
    if (to) pg_put(to, value, bytes);
}

uint16_t copy_place(struct pg_reader *from, struct pg_writer *to) {
    uint32_t variant = (uint32_t)pg_take(from, 4), letter;
    size_t bytes;
    struct sample sample;
    const char *name;
    put_if(to, variant, 4);
    switch (variant) {
    case FOREIGN_PLACE_NOWHERE: return 0;
    case FOREIGN_PLACE_NAMED:
        name = pg_take_text(from, &bytes);
        if (to) pg_put_text(to, name, bytes);
        return (uint16_t)bytes;
    case FOREIGN_PLACE_AT:
        sample = take_sample(from);
        letter = pg_take_char(from);
        if (to) put_sample(to, &sample);
        put_if(to, letter, 4);
        return (uint16_t)sample.level;
    default: from->bad = true; return 0;
    }
}

bool copy_optional_place(struct pg_reader *from, struct pg_writer *to, uint16_t *measure) {
    bool is = pg_take_bool(from);
    put_if(to, is, 1);
    *measure = is ? copy_place(from, to) : 0;
    return is;
}

void copy_person(struct pg_reader *from, struct pg_writer *to, unsigned depth, unsigned years,
                 const char *mark) {
    size_t bytes;
    uint16_t measure;
    if (depth > DEPTH_MAX) from->bad = true;
    const char *name = pg_take_text(from, &bytes);
    if (to) {
        pg_put(to, bytes + strlen(mark), 4);
        pg_put_bytes(to, name, bytes);
        pg_put_bytes(to, mark, strlen(mark));
    }
    put_if(to, (uint8_t)(pg_take(from, 1) + years), 1);
    size_t friends = pg_take_count(from, 4 + 1 + 4 + 1);
    put_if(to, friends, 4);
    for (size_t i = 0; i < friends && !from->bad; i++) copy_person(from, to, depth + 1, 0, "");
    copy_optional_place(from, to, &measure);
}
