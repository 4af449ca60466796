/* Calls every procedure of the interface `Foreign` and checks the results.
 *
 *   client tcp|udp PORT NAME [LOSE]     drops one of LOSE packets that it sends
 *   client gone PORT NAME               calls over TCP until the export is withdrawn
 *   client restarted PORT NAME          calls over UDP; after a line on standard input, calls again:
 *                                       this call must fail as not executed
 */
#include "interface.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 20000
#define MIB ((size_t)1 << 20)

static const uint8_t DIGEST[16] = FOREIGN_DIGEST;

static void check(bool right, const char *what, int line) {
    if (right) return;
    fprintf(stderr, "client.c:%d: %s\n", line, what);
    exit(1);
}
#define CHECK(right) check(right, #right, __LINE__)

/* The binding: `exchange` if `udp`, otherwise `stream`. */
static bool udp;
static const char *name;
static struct pg_stream stream;
static struct pg_exchange exchange;

static bool big(void) { return udp ? exchange.big : stream.big; }

static enum pg_outcome transport(const struct pg_call *call, struct pg_reply *reply, unsigned ms) {
    return udp ? pg_exchange_call(&exchange, call, reply, ms)
               : pg_stream_call(&stream, call, reply, ms);
}

static struct pg_call call;
static struct pg_reply reply;
static struct pg_returned got;

static struct pg_writer *begin(uint32_t procedure) {
    pg_call_free(&call);
    pg_call_begin(&call, procedure, big());
    return &call.message;
}

/* Makes the call and opens its reply; returns the answer. */
static uint32_t make_call(const struct pg_offer *offers, size_t blocks) {
    pg_call_ends(&call);
    pg_reply_free(&reply);
    enum pg_outcome outcome = transport(&call, &reply, LIMIT_MS);
    if (outcome != PG_REPLIED) fprintf(stderr, "procedure %u: outcome %d\n", call.procedure, outcome);
    CHECK(outcome == PG_REPLIED);
    CHECK(pg_reply_open(&reply, big(), offers, blocks, &got));
    return reply.answer;
}

/* Whether a head or a block consists of exactly the expected bytes; frees `expected` for reuse. */
static bool equals(const struct pg_reader *part, struct pg_writer *expected) {
    bool same = part->count == expected->count &&
                (part->count == 0 || memcmp(part->bytes, expected->bytes, part->count) == 0);
    pg_writer_free(expected);
    expected->big = big();
    return same;
}

static void person(struct pg_writer *to, const char *who, uint8_t age, size_t friends) {
    pg_put_text(to, who, strlen(who));
    pg_put(to, age, 1);
    pg_put(to, friends, 4);
}

static void nowhere(struct pg_writer *to) { /* an `Option<Place>` */
    pg_put(to, 1, 1);
    pg_put(to, FOREIGN_PLACE_NOWHERE, 4);
}

static void call_nothing(void) {
    begin(FOREIGN_NOTHING);
    pg_call_head_ends(&call);
    CHECK(make_call(NULL, FOREIGN_NOTHING_BLOCKS) == PG_OK && got.head.count == 0);
    begin(PG_PING);
    pg_call_head_ends(&call);
    CHECK(make_call(NULL, 0) == PG_OK && got.head.count == 0);
}

static void call_primitives(void) {
    struct pg_writer *head = begin(FOREIGN_PRIMITIVES), expected = {.big = big()};
    const pg_u128 wide = (pg_u128)0x0123456789abcdef << 64 | ~(uint64_t)0;
    pg_put(head, 1, 1);
    for (size_t bytes = 1; bytes <= 16; bytes *= 2) pg_put(head, wide, bytes);
    for (size_t bytes = 1; bytes <= 16; bytes *= 2) pg_put(head, wide - 4, bytes);
    pg_put_f32(head, 1.5f);
    pg_put_f64(head, -2.5);
    pg_put(head, 0x1d11e, 4);
    pg_call_head_ends(&call);
    CHECK(make_call(NULL, FOREIGN_PRIMITIVES_BLOCKS) == PG_OK);
    pg_put(&expected, 0, 1);
    for (size_t bytes = 1; bytes <= 16; bytes *= 2) pg_put(&expected, wide + 1, bytes);
    for (size_t bytes = 1; bytes <= 16; bytes *= 2) pg_put(&expected, 4 - wide, bytes);
    pg_put_f32(&expected, 3.0f);
    pg_put_f64(&expected, -5.0);
    pg_put(&expected, 0x1d11e, 4);
    CHECK(equals(&got.head, &expected));
}

static void call_texts(void) {
    static const char *const words[] = {"falcon", "gr\xc3\xb6\xc3\x9f", "", "x"};
    struct pg_writer *head = begin(FOREIGN_TEXTS), expected = {.big = big()};
    pg_put(head, strlen(words[0]), 4);
    pg_put_text(head, words[1], strlen(words[1]));
    pg_put(head, 2, 4);
    for (int i = 2; i < 4; i++) pg_put_text(head, words[i], strlen(words[i]));
    pg_call_head_ends(&call);
    pg_put_bytes(pg_call_block(&call), words[0], strlen(words[0]));
    pg_call_block(&call);
    CHECK(make_call(NULL, FOREIGN_TEXTS_BLOCKS) == PG_OK);
    pg_put(&expected, 4, 4);
    for (int i = 0; i < 4; i++) pg_put_text(&expected, words[i], strlen(words[i]));
    CHECK(equals(&got.head, &expected));
}

static void call_sums(void) {
    static const size_t counts[5] = {3, 5, 1000, 0, 7};
    struct pg_writer *head = begin(FOREIGN_SUMS), expected = {.big = big()};
    uint64_t sums[4] = {0};
    double samples = 0;
    for (int i = 0; i < 5; i++) pg_put(head, counts[i], 4);
    pg_call_head_ends(&call);
    for (int i = 0; i < 4; i++) {
        struct pg_writer *block = pg_call_block(&call);
        for (size_t k = 0; k < counts[i]; k++) {
            uint64_t value = (k + 1) * (i < 2 ? 51 : 0x01020304) & (i ? ~0ull : 255);
            pg_put(block, value, (size_t)1 << i);
            sums[i] += value & (i == 2 ? 0xffffffff : ~0ull);
        }
    }
    struct pg_writer *block = pg_call_block(&call);
    for (uint32_t k = 0; k < counts[4]; k++) {
        struct sample sample = sample_of(k);
        put_sample(block, &sample);
        samples += sample.value + sample.level;
    }
    CHECK(make_call(NULL, FOREIGN_SUMS_BLOCKS) == PG_OK);
    for (int i = 0; i < 4; i++) pg_put(&expected, sums[i], 8);
    pg_put_f64(&expected, samples);
    CHECK(equals(&got.head, &expected));
}

static void call_lend(size_t bytes) {
    struct pg_writer *head = begin(FOREIGN_LEND), expected = {.big = big()};
    uint64_t sum = 3;
    pg_put(head, 3, 4);
    pg_put(head, bytes, 4);
    pg_put(head, 2, 4);
    pg_call_head_ends(&call);
    pg_put_bytes(pg_call_block(&call), "key", 3);
    struct pg_writer *lent = pg_call_lent(&call);
    for (size_t i = 0; i < bytes; i++) pg_put(lent, (uint8_t)i, 1), sum += (uint8_t)i;
    lent = pg_call_lent(&call);
    for (uint64_t i = 1; i <= 2; i++) pg_put(lent, i << 40, 8), sum += i << 40;
    CHECK(make_call(NULL, FOREIGN_LEND_BLOCKS) == PG_OK);
    pg_put(&expected, sum, 8);
    CHECK(equals(&got.head, &expected));
}

static void call_fill(size_t count, size_t room) {
    struct pg_offer offers[FOREIGN_FILL_BLOCKS] = {
        {room, 1}, {room / 16, FOREIGN_SAMPLE_SIZE}, {FOREIGN_FILL_FEW_MAX, 2}};
    struct pg_writer *head = begin(FOREIGN_FILL);
    struct pg_writer expected[4] = {{.big = big()}, {.big = big()}, {.big = big()}, {.big = big()}};
    pg_put(head, count, 4);
    for (int i = 0; i < 3; i++) pg_put(head, offers[i].elements, 4);
    pg_call_head_ends(&call);
    CHECK(make_call(offers, FOREIGN_FILL_BLOCKS) == PG_OK);
    size_t bytes = count < room ? count : room;
    pg_put(&expected[3], bytes, 4);
    for (size_t i = 0; i < bytes; i++) pg_put(&expected[0], (uint8_t)(7 * i), 1);
    for (uint32_t i = 0; i < count / 8 && i < room / 16; i++) {
        struct sample sample = sample_of(i);
        put_sample(&expected[1], &sample);
    }
    for (size_t i = 0; i < count && i < FOREIGN_FILL_FEW_MAX; i++) pg_put(&expected[2], 257 * i, 2);
    CHECK(equals(&got.head, &expected[3]));
    for (int i = 0; i < 3; i++) CHECK(equals(&got.blocks[i], &expected[i]));
}

static void call_change(void) {
    struct pg_offer offers[FOREIGN_CHANGE_BLOCKS] = {{3, 4}, {0, 0}};
    struct pg_writer *head = begin(FOREIGN_CHANGE), expected = {.big = big()};
    struct sample sample = sample_of(5);
    const pg_u128 counter = ~(uint64_t)0;
    pg_put(head, counter, 16);
    put_sample(head, &sample);
    pg_put(head, 3, 4);
    pg_put(head, 2, 4);
    person(head, "Ada", 36, 1);
    person(head, "Bob", 40, 0);
    nowhere(head);
    pg_put(head, 0, 1);
    person(head, "Cid", 255, 0);
    pg_put(head, 0, 1);
    pg_call_head_ends(&call);
    struct pg_writer *block = pg_call_block(&call);
    for (uint32_t i = 0; i < 3; i++) pg_put(block, i << 20, 4);
    pg_call_block(&call);
    CHECK(make_call(offers, FOREIGN_CHANGE_BLOCKS) == PG_OK);

    struct sample changed = sample;
    changed.value = -sample.value;
    changed.level++;
    for (int i = 0; i < 4; i++) changed.at[i] = sample.at[3 - i];
    pg_put_text(&expected, "changed", 7);
    pg_put(&expected, counter + 1, 16);
    put_sample(&expected, &changed);
    pg_put(&expected, 2, 4);
    person(&expected, "Ada!", 37, 1);
    person(&expected, "Bob", 40, 0);
    nowhere(&expected);
    pg_put(&expected, 0, 1);
    person(&expected, "Cid!", 0, 0);
    pg_put(&expected, 0, 1);
    CHECK(equals(&got.head, &expected));
    for (uint32_t i = 3; i-- > 0;) pg_put(&expected, (i << 20) + 1, 4);
    CHECK(equals(&got.blocks[0], &expected));
}

static void call_people(int with_place) {
    struct pg_writer *head = begin(FOREIGN_PEOPLE), expected = {.big = big()};
    struct sample sample = sample_of(9);
    person(head, "Ada", 36, 0);
    nowhere(head);
    pg_put(head, 1, 4);
    person(head, "Bob", 40, 0);
    pg_put(head, 0, 1);
    pg_put(head, with_place, 1);
    if (with_place) {
        pg_put(head, FOREIGN_PLACE_AT, 4);
        put_sample(head, &sample);
        pg_put(head, 'q', 4);
    }
    pg_call_head_ends(&call);
    pg_call_block(&call);
    CHECK(make_call(NULL, FOREIGN_PEOPLE_BLOCKS) == PG_OK);
    pg_put(&expected, 1, 1);
    person(&expected, "Ada", 36, 1);
    person(&expected, "Bob", 40, 0);
    pg_put(&expected, 0, 1);
    nowhere(&expected);
    pg_put(&expected, !with_place, 1);
    if (with_place) {
        pg_put(&expected, 9, 2);
        pg_put(&expected, 2, 4);
        pg_put(&expected, FOREIGN_PLACE_AT, 4);
        put_sample(&expected, &sample);
        pg_put(&expected, 'q', 4);
    } else {
        pg_put_text(&expected, "no place", 8);
        pg_put(&expected, 1, 4);
    }
    pg_put(&expected, FOREIGN_PLACE_NOWHERE, 4);
    CHECK(equals(&got.head, &expected));
}

static void call_fail(void) {
    for (uint32_t code = 0; code < 3; code++) {
        struct pg_offer offers[FOREIGN_FAIL_BLOCKS] = {{4, 1}};
        struct pg_writer *head = begin(FOREIGN_FAIL), expected = {.big = big()};
        pg_put(head, code, 4);
        pg_put(head, 4, 4);
        pg_call_head_ends(&call);
        CHECK(make_call(offers, FOREIGN_FAIL_BLOCKS) == (code ? PG_ERR : PG_OK));
        if (code == 1) pg_put(&expected, FOREIGN_FAILURE_CODE, 4), pg_put(&expected, 7, 4);
        if (code == 2) pg_put(&expected, FOREIGN_FAILURE_SAID, 4), pg_put_text(&expected, "no", 2);
        CHECK(equals(&got.head, &expected));
    }
}

static uint32_t refusal(uint32_t answer) {
    const char *why;
    size_t bytes;
    CHECK(reply.answer == answer);
    return pg_reply_refusal(&reply, &why, &bytes);
}

static void call_what_is_refused(void) {
    begin(FOREIGN_STOP);
    pg_call_head_ends(&call);
    make_call(NULL, 0);
    CHECK(refusal(PG_MAY_HAVE_EXECUTED) == PG_PANICKED);

    begin(FOREIGN_PROCEDURES);
    pg_call_head_ends(&call);
    make_call(NULL, 0);
    CHECK(refusal(PG_NOT_EXECUTED) == PG_NO_SUCH_PROCEDURE);

    pg_put_bytes(begin(FOREIGN_PAUSE), "123", 3);
    pg_call_head_ends(&call);
    make_call(NULL, 0);
    CHECK(refusal(PG_NOT_EXECUTED) == PG_BAD_ARGUMENTS);
}

static void call_mirror(size_t bytes) {
    struct pg_offer offers[FOREIGN_MIRROR_BLOCKS] = {{bytes, 1}};
    struct pg_writer *head = begin(FOREIGN_MIRROR), expected = {.big = big()};
    uint32_t sum = 0;
    pg_put(head, bytes, 4);
    pg_put(head, bytes, 4);
    pg_call_head_ends(&call);
    struct pg_writer *block = pg_call_block(&call);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(i * i >> 5);
        pg_put(block, byte, 1);
        sum += byte;
    }
    CHECK(make_call(offers, FOREIGN_MIRROR_BLOCKS) == PG_OK);
    pg_put(&expected, sum, 4);
    CHECK(equals(&got.head, &expected));
    CHECK(got.blocks[0].count == bytes);
    for (size_t i = 0; i < bytes; i++)
        CHECK(got.blocks[0].bytes[bytes - 1 - i] == (uint8_t)(i * i >> 5));
}

static void call_pause(uint32_t pause_ms, unsigned limit_ms) {
    pg_put(begin(FOREIGN_PAUSE), pause_ms, 4);
    pg_call_head_ends(&call);
    pg_call_ends(&call);
    pg_reply_free(&reply);
    enum pg_outcome outcome = transport(&call, &reply, limit_ms);
    CHECK(outcome == (pause_ms < limit_ms ? PG_REPLIED : PG_TIMED_OUT));
}

static enum pg_outcome bump(uint64_t key) {
    pg_put(begin(FOREIGN_BUMP), key, 8);
    pg_call_head_ends(&call);
    pg_call_ends(&call);
    pg_reply_free(&reply);
    return transport(&call, &reply, LIMIT_MS);
}

static void call_bump(unsigned times) {
    uint64_t key;
    pg_random(&key, sizeof key);
    for (unsigned i = 1; i <= times; i++) {
        CHECK(bump(key) == PG_REPLIED && pg_reply_open(&reply, big(), NULL, 0, &got));
        CHECK(pg_take(&got.head, 8) == i && pg_all_taken(&got.head));
    }
}

/* Checks that the description from the server agrees with the generated header. */
static void check_description(const uint8_t *bytes, size_t count) {
    const char *text = FOREIGN_CANONICAL;
    size_t title = strlen(FOREIGN_NAME), at = 4 + title + 4 + 16;
    CHECK(count > at + 4 && pg_le32(bytes) == title && !memcmp(bytes + 4, FOREIGN_NAME, title));
    CHECK(pg_le32(bytes + 4 + title) == FOREIGN_VERSION && !memcmp(bytes + at - 16, DIGEST, 16));
    CHECK(pg_le32(bytes + at) == strlen(text) && count - at - 4 >= strlen(text));
    CHECK(!memcmp(bytes + at + 4, text, strlen(text)));
}

/* Whether the server refused with this kind; prints the reason of any other refusal. */
static bool refused_as(uint32_t kind) {
    if (stream.header.kind != PG_REFUSAL || stream.header.body < 8) return false;
    if (pg_le32(stream.body) == kind) return true;
    fprintf(stderr, "refused: %.*s\n", (int)stream.header.body - 8, (char *)stream.body + 8);
    return false;
}

static void bind_stream(uint16_t port) {
    uint8_t wrong[16] = {0};
    CHECK(pg_stream_connect(&stream, port));
    CHECK(pg_stream_describe(&stream, name));
    check_description(stream.body, stream.header.body);
    CHECK(!pg_stream_describe(&stream, "nobody") && refused_as(PG_NOT_FOUND));
    pg_stream_close(&stream);

    CHECK(pg_stream_connect(&stream, port));
    CHECK(!pg_stream_bind(&stream, name, wrong) && refused_as(PG_INTERFACE_MISMATCH));
    CHECK(pg_stream_bind(&stream, name, DIGEST) || refused_as(0));
}

static void bind_exchange(uint16_t port) {
    uint8_t wrong[16] = {0};
    if (!pg_exchange_bind(&exchange, port, name, DIGEST)) {
        fprintf(stderr, "%s\n", exchange.why);
        exit(1);
    }
    pg_exchange_close(&exchange);
    CHECK(!pg_exchange_bind(&exchange, port, name, wrong));
    CHECK(!pg_exchange_bind(&exchange, port, "nobody", DIGEST));
    CHECK(pg_exchange_bind(&exchange, port, name, DIGEST));
    begin(PG_DESCRIBE);
    pg_call_head_ends(&call);
    CHECK(make_call(NULL, 0) == PG_OK);
    check_description(got.head.bytes, got.head.count);
}

static void all(void) {
    call_nothing();
    call_primitives();
    call_texts();
    call_sums();
    call_lend(10);
    call_lend(200000);
    call_fill(10, 100);
    call_fill(0, 0);
    call_fill(20000, 30000);
    call_fill(30000, 20000);
    call_change();
    call_people(0);
    call_people(1);
    call_fail();
    call_what_is_refused();
    for (size_t bytes = 1300; bytes < 1440; bytes += 7) call_mirror(bytes);
    call_mirror(MIB);
    call_bump(50);
    call_pause(5, LIMIT_MS);
    call_pause(300, 50);
    call_nothing();
}

/* Calls until the export is gone; the last call must fail as not executed. */
static void until_gone(void) {
    for (;;) {
        enum pg_outcome outcome = bump(1);
        if (outcome == PG_REPLIED && reply.answer == PG_OK) {
            printf("called\n");
            fflush(stdout);
            poll(NULL, 0, 1);
            continue;
        }
        CHECK(outcome == PG_FAILED_NOT_EXECUTED ||
              (outcome == PG_REPLIED && refusal(PG_NOT_EXECUTED) == PG_WITHDRAWN));
        return;
    }
}

/* Calls once, waits for a line and a pause, and calls again: now another server has the port. */
static void after_a_restart(void) {
    char line[8];
    CHECK(bump(1) == PG_REPLIED);
    printf("called\n");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin));
    while (!pg_exchange_paused(&exchange)) poll(NULL, 0, 1);
    CHECK(bump(1) == PG_FAILED_NOT_EXECUTED);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    uint16_t port = (uint16_t)atoi(argv[2]);
    name = argv[3];
    bool restarted = strcmp(argv[1], "restarted") == 0;
    udp = restarted || strcmp(argv[1], "udp") == 0;
    if (argc > 4) pg_lose = (unsigned)atoi(argv[4]);
    if (udp)
        bind_exchange(port);
    else
        bind_stream(port);
    if (strcmp(argv[1], "gone") == 0) {
        until_gone();
        printf("gone\n");
        return 0;
    }
    if (restarted) {
        after_a_restart();
        printf("not executed\n");
        return 0;
    }
    all();
    printf("all results are correct: values are %s-endian\n", big() ? "big" : "little");
    if (udp) {
        pg_exchange_settle(&exchange);
        pg_exchange_close(&exchange);
    } else {
        pg_stream_close(&stream);
    }
    pg_call_free(&call);
    pg_reply_free(&reply);
    return 0;
}
