/* Fragmentation and reassembly of messages (docs/PROTOCOL.md, part 9). */
#include "peregrine.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW 32u /* fixed, and small enough for the buffer of any socket */
#define BEYOND_MAX 1024u

static bool bit(const uint8_t *bits, uint32_t at) { return bits[at / 8] >> at % 8 & 1; }

static void set_bit(uint8_t *bits, uint32_t at) { bits[at / 8] |= (uint8_t)(1 << at % 8); }

/* ---- shapes ---- */

bool pg_shape_of(struct pg_shape *shape, uint32_t total, uint32_t piece) {
    if (total > 1u << 30 || piece % 16 || piece < 512 || piece > 65440) return false;
    *shape = (struct pg_shape){total, piece, total ? (total + piece - 1) / piece : 1};
    return true;
}

/* Returns the length of a fragment, and sets its offset. Fragment 0 is first, with the remainder. */
uint32_t pg_fragment_range(const struct pg_shape *shape, uint32_t fragment, uint32_t *at) {
    uint32_t front = shape->total - (shape->count - 1) * shape->piece;
    *at = fragment ? front + (fragment - 1) * shape->piece : 0;
    return fragment ? shape->piece : front;
}

/* Fragments are sent in the order 1, 2, ..., count - 1, 0. */
uint32_t pg_position(const struct pg_shape *shape, uint32_t fragment) {
    return fragment ? fragment - 1 : shape->count - 1;
}

static uint32_t fragment_at(const struct pg_shape *shape, uint32_t position) {
    return position == shape->count - 1 ? 0 : position + 1;
}

/* ---- sending ---- */

void pg_sender_begin(struct pg_sender *sender, const uint8_t *message, struct pg_shape shape,
                     uint32_t credits) {
    pg_sender_free(sender);
    *sender = (struct pg_sender){.shape = shape, .message = message, .credits = credits,
                                 .had = pg_allocate(shape.count / 8 + 1)};
}

static uint32_t allowed(const struct pg_sender *sender) {
    uint32_t window = sender->credits < WINDOW ? sender->credits : WINDOW;
    return window ? window : 1;
}

/* Sends what the window allows. PLEASE requests a HAVE before the window is full. */
void pg_sender_go_on(struct pg_sender *sender, pg_emit emit, void *of) {
    uint32_t window = allowed(sender), last = sender->acknowledged + window;
    bool rest = sender->shape.count > last;
    while (sender->sent < sender->shape.count && sender->sent < last) {
        uint32_t position = sender->sent++;
        bool please = rest && (position + 1 == last || (position + 1) % ((window + 1) / 2) == 0);
        sender->last =
            emit(of, fragment_at(&sender->shape, position), please ? PG_PLEASE : 0);
    }
}

static bool older(uint16_t a, uint16_t b) { return (int16_t)(uint16_t)(a - b) < 0; }

/* Handles a HAVE of the receiver: retransmits lost fragments; if none is lost, sends new ones. */
void pg_sender_heard(struct pg_sender *sender, const struct pg_packet *have, pg_emit emit,
                     void *of) {
    uint32_t next = have->fragment, bits = (uint32_t)have->body_bytes * 8, end = next;
    const uint8_t *bitmap = have->body;
    /* A HAVE for another piece size acknowledges nothing. */
    if (have->piece != sender->shape.piece) next = end = bits = 0;
    if (next < sender->acknowledged || next > sender->sent) return;
    sender->acknowledged = next;
    sender->credits = have->credits;
    for (uint32_t i = 0; i < bits && next + i < sender->sent; i++)
        if (bit(bitmap, i)) {
            set_bit(sender->had, next + i);
            end = next + i + 1;
        }
    /* Below `end`, missing fragments are lost, and not only late. */
    bool waited = have->flags & PG_PLEASE;
    if (waited || !older(have->echo, sender->last)) end = sender->sent;
    if (!waited && sender->again && older(have->echo, sender->last_again)) end = next;
    uint32_t lost = 0, most = allowed(sender);
    uint32_t positions[WINDOW];
    for (uint32_t p = next; p < end && lost < most; p++)
        if (!bit(sender->had, p)) positions[lost++] = p;
    for (uint32_t i = 0; i < lost; i++) {
        uint16_t flags = PG_RESENT | (i + 1 == lost ? PG_PLEASE : 0);
        sender->last = sender->last_again =
            emit(of, fragment_at(&sender->shape, positions[i]), flags);
        sender->again = true;
    }
    if (lost == 0) pg_sender_go_on(sender, emit, of);
}

void pg_sender_free(struct pg_sender *sender) {
    free(sender->had);
    *sender = (struct pg_sender){0};
}

/* ---- receiving ---- */

bool pg_assembly_begin(struct pg_assembly *assembly, struct pg_shape shape) {
    pg_assembly_free(assembly);
    if (shape.total > PG_MESSAGE_MAX) return false;
    *assembly = (struct pg_assembly){.shape = shape, .message = pg_allocate(shape.total),
                                     .have = pg_allocate(shape.count / 8 + 1)};
    return true;
}

/* Stores a fragment; returns whether it belongs to this message and is no duplicate. */
bool pg_assembly_place(struct pg_assembly *assembly, const struct pg_packet *packet) {
    struct pg_shape shape;
    if (!pg_shape_of(&shape, packet->total, packet->piece) ||
        memcmp(&shape, &assembly->shape, sizeof shape) != 0 || packet->fragment >= shape.count)
        return false;
    uint32_t at, bytes = pg_fragment_range(&shape, packet->fragment, &at);
    uint32_t position = pg_position(&shape, packet->fragment);
    if (bytes != packet->body_bytes || position >= assembly->next + BEYOND_MAX) return false;
    if (bit(assembly->have, position)) return false;
    memcpy(assembly->message + at, packet->body, bytes);
    set_bit(assembly->have, position);
    if (position + 1 > assembly->end) assembly->end = position + 1;
    while (assembly->next < shape.count && bit(assembly->have, assembly->next)) assembly->next++;
    assembly->whole = assembly->next == shape.count;
    return true;
}

void pg_assembly_have(const struct pg_assembly *assembly, struct pg_packet *have,
                      uint8_t *bitmap) {
    have->piece = assembly->shape.piece;
    have->fragment = assembly->next;
    if (assembly->whole) {
        have->flags |= PG_ALL;
        return;
    }
    uint32_t bits = assembly->end > assembly->next ? assembly->end - assembly->next : 0;
    if (bits == 0) return;
    memset(bitmap, 0, 128);
    for (uint32_t i = 0; i < bits && i < 1024; i++)
        if (bit(assembly->have, assembly->next + i)) set_bit(bitmap, i);
    have->flags |= PG_CHECKED;
    have->body = bitmap;
    have->body_bytes = bits < 1024 ? (bits + 7) / 8 : 128;
}

void pg_assembly_free(struct pg_assembly *assembly) {
    free(assembly->message);
    free(assembly->have);
    *assembly = (struct pg_assembly){0};
}
