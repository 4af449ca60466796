/* Encodes and decodes values and the messages of calls and replies (docs/REPRESENTATION.md). */
#include "peregrine.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static uint8_t *append(struct pg_writer *to, size_t bytes) {
    if (!to->bytes || bytes > to->room - to->count) {
        size_t room = 2 * to->room + bytes + 64;
        to->bytes = realloc(to->bytes, room);
        if (!to->bytes) abort();
        to->room = room;
    }
    uint8_t *at = to->bytes + to->count;
    to->count += bytes;
    return at;
}

void pg_align(struct pg_writer *to, size_t alignment) {
    size_t padding = -to->count & (alignment - 1);
    memset(append(to, padding), 0, padding);
}

/* Writes a primitive value of 1, 2, 4, 8 or 16 bytes, aligned to its size. */
void pg_put(struct pg_writer *to, pg_u128 value, size_t bytes) {
    pg_align(to, bytes);
    uint8_t *at = append(to, bytes);
    for (size_t i = 0; i < bytes; i++)
        at[to->big ? bytes - 1 - i : i] = (uint8_t)(value >> (8 * i));
}

void pg_put_bytes(struct pg_writer *to, const void *bytes, size_t count) {
    uint8_t *at = append(to, count);
    if (count) memcpy(at, bytes, count);
}

void pg_put_f32(struct pg_writer *to, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    pg_put(to, bits, 4);
}

void pg_put_f64(struct pg_writer *to, double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    pg_put(to, bits, 8);
}

void pg_put_text(struct pg_writer *to, const char *text, size_t bytes) {
    pg_put(to, bytes, 4);
    pg_put_bytes(to, text, bytes);
}

void pg_writer_free(struct pg_writer *one) {
    free(one->bytes);
    *one = (struct pg_writer){0};
}

/* ---- reading: after an error, `bad` stays set, and all values are zero ---- */

static const uint8_t *taken(struct pg_reader *from, size_t bytes) {
    if (from->bad || bytes > from->count - from->at) {
        from->bad = true;
        return NULL;
    }
    const uint8_t *at = from->bytes + from->at;
    from->at += bytes;
    return at;
}

void pg_take_align(struct pg_reader *from, size_t alignment) {
    taken(from, -from->at & (alignment - 1));
}

pg_u128 pg_take(struct pg_reader *from, size_t bytes) {
    pg_take_align(from, bytes);
    const uint8_t *at = taken(from, bytes);
    pg_u128 value = 0;
    for (size_t i = 0; at && i < bytes; i++)
        value |= (pg_u128)at[from->big ? bytes - 1 - i : i] << (8 * i);
    return value;
}

bool pg_take_bool(struct pg_reader *from) {
    pg_u128 byte = pg_take(from, 1);
    if (byte > 1) from->bad = true;
    return byte == 1;
}

uint32_t pg_take_char(struct pg_reader *from) {
    uint32_t letter = (uint32_t)pg_take(from, 4);
    if (letter > 0x10ffff || (letter >= 0xd800 && letter < 0xe000)) from->bad = true;
    return letter;
}

float pg_take_f32(struct pg_reader *from) {
    uint32_t bits = (uint32_t)pg_take(from, 4);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

double pg_take_f64(struct pg_reader *from) {
    uint64_t bits = (uint64_t)pg_take(from, 8);
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

bool pg_utf8(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count;) {
        uint8_t first = bytes[i];
        size_t more = first < 0x80 ? 0 : first >> 5 == 6 ? 1 : first >> 4 == 14 ? 2
                                     : first >> 3 == 30 ? 3 : 4;
        if (more == 4 || more >= count - i) return false;
        uint32_t letter = more == 0 ? first : first & (0x3fu >> more);
        for (size_t k = 1; k <= more; k++) {
            if (bytes[i + k] >> 6 != 2) return false;
            letter = letter << 6 | (bytes[i + k] & 0x3f);
        }
        static const uint32_t least[4] = {0, 0x80, 0x800, 0x10000};
        if (letter < least[more] || letter > 0x10ffff || letter >> 11 == 0x1b) return false;
        i += more + 1;
    }
    return true;
}

/* Returns a pointer to a text in the message; no zero byte terminates it. */
const char *pg_take_text(struct pg_reader *from, size_t *bytes) {
    *bytes = (uint32_t)pg_take(from, 4);
    const uint8_t *at = taken(from, *bytes);
    if (!at || !pg_utf8(at, *bytes)) {
        from->bad = true;
        *bytes = 0;
        return "";
    }
    return (const char *)at;
}

/* Reads a number of elements, and checks that the remaining bytes can hold them. */
size_t pg_take_count(struct pg_reader *from, size_t element_bytes_min) {
    size_t count = (uint32_t)pg_take(from, 4);
    if (count > (from->count - from->at) / element_bytes_min) from->bad = true;
    return from->bad ? 0 : count;
}

bool pg_all_taken(const struct pg_reader *from) { return !from->bad && from->at == from->count; }

/* ---- calls at the client ---- */

void pg_call_begin(struct pg_call *call, uint32_t procedure, bool big) {
    *call = (struct pg_call){.procedure = procedure, .message.big = big};
}

void pg_call_head_ends(struct pg_call *call) { call->head = call->message.count; }

/* Begins the next copied block; the caller writes its elements to the returned writer. */
struct pg_writer *pg_call_block(struct pg_call *call) {
    pg_align(&call->message, 16);
    return &call->message;
}

/* Begins the next lent block; all copied blocks must come before it. */
struct pg_writer *pg_call_lent(struct pg_call *call) {
    pg_align(&call->message, 16);
    if (!call->lends) call->copied = call->message.count;
    call->lends = true;
    return &call->message;
}

void pg_call_ends(struct pg_call *call) {
    if (!call->lends) call->copied = call->message.count;
}

void pg_call_free(struct pg_call *call) { pg_writer_free(&call->message); }

/* ---- calls at the server ---- */

bool pg_request_open(struct pg_request *request, uint32_t procedure, const uint8_t *message,
                     size_t head, size_t copied, size_t total) {
    *request = (struct pg_request){.procedure = procedure, .message = message, .total = total,
                                   .next = head, .big = PG_HOST_BIG};
    request->head = (struct pg_reader){.bytes = message, .count = head, .big = PG_HOST_BIG};
    return head <= copied && copied <= total;
}

struct pg_reader pg_request_block(struct pg_request *request, size_t bytes) {
    size_t at = PG_ROUND16(request->next);
    if (request->bad || at > request->total || bytes > request->total - at) {
        request->bad = true;
        return (struct pg_reader){.bad = true};
    }
    request->next = at + bytes;
    return (struct pg_reader){.bytes = request->message + at, .count = bytes, .big = request->big};
}

/* Whether the whole call was decoded without an error. */
bool pg_request_ends(const struct pg_request *request) {
    return !request->bad && pg_all_taken(&request->head) &&
           PG_ROUND16(request->next) >= request->total;
}

/* ---- replies at the server ---- */

void pg_result_begin(struct pg_result *result, size_t block_count) {
    *result = (struct pg_result){.block_count = block_count, .head.big = PG_HOST_BIG};
    for (size_t i = 0; i < block_count; i++) result->blocks[i].big = PG_HOST_BIG;
}

/* Writes the reply. Over networks, a block has only its filled bytes, not its whole capacity. */
void pg_result_ends(struct pg_result *result, uint32_t answer, struct pg_reply *reply) {
    size_t blocks = answer == PG_OK ? result->block_count : 0, head = result->head.count;
    struct pg_writer message = {0}; /* the table is little-endian */
    size_t first = blocks == 0 ? 0 : 4 * blocks > 32 ? PG_ROUND16(4 * blocks) : 32;
    for (size_t i = 0; i < blocks; i++) pg_put(&message, result->blocks[i].count, 4);
    size_t head_at = message.count;
    bool fits = head_at + head <= first;
    if (fits) pg_put_bytes(&message, result->head.bytes, head);
    if (blocks) memset(append(&message, first - message.count), 0, first - message.count);
    for (size_t i = 0; i < blocks; i++) {
        pg_align(&message, 16);
        pg_put_bytes(&message, result->blocks[i].bytes, result->blocks[i].count);
    }
    if (blocks) pg_align(&message, 16);
    if (!fits) {
        head_at = message.count;
        pg_put_bytes(&message, result->head.bytes, head);
    }
    *reply = (struct pg_reply){.answer = answer, .message = message, .head_at = head_at,
                               .head = head};
    pg_writer_free(&result->head);
    for (size_t i = 0; i < result->block_count; i++) pg_writer_free(&result->blocks[i]);
}

/* Writes a refusal, which is little-endian on every binding. */
void pg_refuse(struct pg_reply *reply, uint32_t answer, uint32_t kind, const char *why) {
    *reply = (struct pg_reply){.answer = answer};
    pg_put(&reply->message, kind, 4);
    pg_put_text(&reply->message, why, strlen(why));
    reply->head = reply->message.count;
}

void pg_reply_free(struct pg_reply *reply) { pg_writer_free(&reply->message); }

/* ---- replies at the client ---- */

bool pg_reply_open(const struct pg_reply *reply, bool big, const struct pg_offer *offers,
                   size_t block_count, struct pg_returned *returned) {
    const uint8_t *message = reply->message.bytes;
    size_t total = reply->message.count, blocks = reply->answer == PG_OK ? block_count : 0;
    *returned = (struct pg_returned){0};
    if (reply->head_at > total || reply->head > total - reply->head_at) return false;
    returned->head = (struct pg_reader){.bytes = message + reply->head_at, .count = reply->head,
                                        .big = big};
    if (4 * blocks > total) return false;
    size_t at = 4 * blocks > 32 ? 4 * blocks : 32;
    for (size_t i = 0; i < blocks; i++) {
        size_t filled = pg_le32(message + 4 * i);
        at = PG_ROUND16(at);
        if (at > total || filled > total - at) return false;
        if (offers[i].element_bytes == 0 ? filled != 0
                                         : filled % offers[i].element_bytes != 0 ||
                                               filled / offers[i].element_bytes > offers[i].elements)
            return false;
        returned->blocks[i] = (struct pg_reader){.bytes = message + at, .count = filled, .big = big};
        at += filled;
    }
    return true;
}

uint32_t pg_reply_refusal(const struct pg_reply *reply, const char **why, size_t *bytes) {
    struct pg_reader head = {.bytes = reply->message.bytes + reply->head_at, .count = reply->head};
    uint32_t kind = (uint32_t)pg_take(&head, 4);
    *why = pg_take_text(&head, bytes);
    bool refused = reply->answer == PG_NOT_EXECUTED || reply->answer == PG_MAY_HAVE_EXECUTED;
    return refused && pg_all_taken(&head) ? kind : 0;
}

/* ---- ping, refusals and descriptions, for every server ---- */

void pg_serve(const struct pg_export *of, uint32_t procedure, const uint8_t *message, size_t head,
              size_t copied, size_t total, struct pg_reply *reply) {
    struct pg_request request;
    if (!pg_request_open(&request, procedure, message, head, copied, total)) {
        pg_refuse(reply, PG_NOT_EXECUTED, PG_BAD_ARGUMENTS, "the message has invalid lengths");
    } else if (procedure == PG_PING) {
        *reply = (struct pg_reply){0};
    } else if (procedure >= of->procedures) {
        pg_refuse(reply, PG_NOT_EXECUTED, PG_NO_SUCH_PROCEDURE, "no procedure has this number");
    } else {
        of->serve(&request, reply);
    }
}

static void put_packed(struct pg_writer *to, uint64_t value, size_t bytes) {
    uint8_t le[8];
    pg_set_le64(le, value);
    pg_put_bytes(to, le, bytes);
}

static void put_packed_text(struct pg_writer *to, const char *text) {
    put_packed(to, strlen(text), 4);
    pg_put_bytes(to, text, strlen(text));
}

/* Writes the description of P 8: packed and little-endian, without documentation, addresses and
 * network. */
void pg_describe(const struct pg_export *of, uint64_t age_ms, uint32_t bindings,
                 struct pg_writer *to) {
    put_packed_text(to, of->interface);
    put_packed(to, of->version, 4);
    pg_put_bytes(to, of->digest, 16);
    put_packed_text(to, of->canonical);
    put_packed(to, 0, 4);
    put_packed(to, 0, 4);
    put_packed(to, age_ms, 8);
    put_packed(to, bindings, 4);
    put_packed(to, 0, 4);
    put_packed(to, 0, 8);
}
