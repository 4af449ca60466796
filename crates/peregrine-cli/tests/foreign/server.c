/* A server of the interface `Foreign` over TCP and UDP, on free ports, which it prints. When its
 * standard input is closed, it sends GOODBYE and ends. */
#include "interface.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LENGTH(of) (sizeof(of) / sizeof *(of))

static void bad_arguments(struct pg_reply *reply) {
    pg_refuse(reply, PG_NOT_EXECUTED, PG_BAD_ARGUMENTS, "the arguments cannot be read");
}

/* Refuses the call and returns, before the procedure has an effect, if any argument is invalid. */
#define ENDS_OR_REFUSE(...)                                                    \
    do {                                                                       \
        const struct pg_reader all_[] = {{.bytes = NULL}, __VA_ARGS__};        \
        bool bad_ = !pg_request_ends(in);                                      \
        for (size_t i_ = 1; i_ < LENGTH(all_); i_++) bad_ |= all_[i_].bad;     \
        if (bad_) {                                                            \
            bad_arguments(reply);                                              \
            return;                                                            \
        }                                                                      \
    } while (0)

static uint32_t take_u32(struct pg_reader *from) { return (uint32_t)pg_take(from, 4); }

static void nothing(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    ENDS_OR_REFUSE();
    pg_result_begin(&result, FOREIGN_NOTHING_BLOCKS);
    pg_result_ends(&result, PG_OK, reply);
}

static void primitives(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    struct pg_reader *head = &in->head;
    pg_result_begin(&result, FOREIGN_PRIMITIVES_BLOCKS);
    pg_put(&result.head, !pg_take_bool(head), 1);
    for (size_t bytes = 1; bytes <= 16; bytes *= 2) pg_put(&result.head, pg_take(head, bytes) + 1, bytes);
    for (size_t bytes = 1; bytes <= 16; bytes *= 2) pg_put(&result.head, -pg_take(head, bytes), bytes);
    pg_put_f32(&result.head, 2 * pg_take_f32(head));
    pg_put_f64(&result.head, 2 * pg_take_f64(head));
    pg_put(&result.head, pg_take_char(head), 4);
    pg_result_ends(&result, PG_OK, reply);
    if (pg_request_ends(in)) return;
    pg_reply_free(reply);
    bad_arguments(reply);
}

static void texts(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    struct pg_reader *head = &in->head;
    size_t first_bytes = take_u32(head), bytes;
    const char *second = pg_take_text(head, &bytes);
    size_t rest = pg_take_count(head, 4);
    struct pg_reader first = pg_request_block(in, first_bytes);
    first.bad |= !pg_utf8(first.bytes, first.count);
    pg_request_block(in, 0); /* the empty block of `rest`, whose texts are in the head */
    pg_result_begin(&result, FOREIGN_TEXTS_BLOCKS);
    pg_put(&result.head, 2 + rest, 4);
    pg_put_text(&result.head, (const char *)first.bytes, first.count);
    pg_put_text(&result.head, second, bytes);
    for (size_t i = 0; i < rest; i++) {
        const char *one = pg_take_text(head, &bytes);
        pg_put_text(&result.head, one, bytes);
    }
    pg_result_ends(&result, PG_OK, reply);
    if (pg_request_ends(in) && !first.bad) return;
    pg_reply_free(reply);
    bad_arguments(reply);
}

static uint64_t sum(struct pg_reader *from, size_t bytes) {
    uint64_t sum = 0;
    while (from->at < from->count) sum += (uint64_t)pg_take(from, bytes);
    return sum;
}

static void sums(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    struct pg_reader blocks[5];
    size_t counts[5];
    static const size_t bytes[5] = {1, 2, 4, 8, FOREIGN_SAMPLE_SIZE};
    double samples = 0;
    for (int i = 0; i < 5; i++) counts[i] = take_u32(&in->head);
    for (int i = 0; i < 5; i++) blocks[i] = pg_request_block(in, counts[i] * bytes[i]);
    pg_result_begin(&result, FOREIGN_SUMS_BLOCKS);
    for (int i = 0; i < 4; i++) pg_put(&result.head, sum(&blocks[i], bytes[i]), 8);
    while (!blocks[4].bad && blocks[4].at < blocks[4].count) {
        struct sample sample = take_sample(&blocks[4]);
        samples += sample.value + sample.level;
    }
    pg_put_f64(&result.head, samples);
    pg_result_ends(&result, PG_OK, reply);
    if (pg_request_ends(in) && !blocks[4].bad) return;
    pg_reply_free(reply);
    bad_arguments(reply);
}

static void lend(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    size_t key_bytes = take_u32(&in->head), bytes = take_u32(&in->head);
    size_t longs = take_u32(&in->head);
    struct pg_reader key = pg_request_block(in, key_bytes);
    struct pg_reader a = pg_request_block(in, bytes), b = pg_request_block(in, 8 * longs);
    key.bad |= !pg_utf8(key.bytes, key.count);
    ENDS_OR_REFUSE(key, a, b);
    pg_result_begin(&result, FOREIGN_LEND_BLOCKS);
    pg_put(&result.head, key.count + sum(&a, 1) + sum(&b, 8), 8);
    pg_result_ends(&result, PG_OK, reply);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void fill(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    size_t count = take_u32(&in->head), bytes = take_u32(&in->head);
    size_t samples = take_u32(&in->head), few = take_u32(&in->head);
    ENDS_OR_REFUSE();
    if (bytes > PG_MESSAGE_MAX / 4 || samples > PG_MESSAGE_MAX / 4 / FOREIGN_SAMPLE_SIZE) {
        pg_refuse(reply, PG_NOT_EXECUTED, PG_TOO_LARGE, "the buffers are larger than the maximum result");
        return;
    }
    pg_result_begin(&result, FOREIGN_FILL_BLOCKS);
    bytes = least(bytes, count);
    for (size_t i = 0; i < bytes; i++) pg_put(&result.blocks[0], (uint8_t)(7 * i), 1);
    for (uint32_t i = 0; i < least(samples, count / 8); i++) {
        struct sample sample = sample_of(i);
        put_sample(&result.blocks[1], &sample);
    }
    few = least(least(few, FOREIGN_FILL_FEW_MAX), count);
    for (size_t i = 0; i < few; i++) pg_put(&result.blocks[2], 257 * i, 2);
    pg_put(&result.head, bytes, 4);
    pg_result_ends(&result, PG_OK, reply);
}

static void change(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    struct pg_reader *head = &in->head;
    pg_u128 counter = pg_take(head, 16);
    struct sample sample = take_sample(head);
    size_t count = take_u32(head), people = pg_take_count(head, 10);
    struct pg_reader values = pg_request_block(in, 4 * count);
    pg_request_block(in, 0);
    pg_result_begin(&result, FOREIGN_CHANGE_BLOCKS);
    sample.value = -sample.value;
    sample.level++;
    for (int i = 0; i < 2; i++) {
        int16_t other = sample.at[3 - i];
        sample.at[3 - i] = sample.at[i];
        sample.at[i] = other;
    }
    pg_put_text(&result.head, "changed", 7);
    pg_put(&result.head, counter + 1, 16);
    put_sample(&result.head, &sample);
    pg_put(&result.head, people, 4);
    for (size_t i = 0; i < people; i++) copy_person(head, &result.head, 1, 1, "!");
    for (size_t i = values.count / 4; i-- > 0;) {
        values.at = 4 * i;
        pg_put(&result.blocks[0], pg_take(&values, 4) + 1, 4);
    }
    pg_result_ends(&result, PG_OK, reply);
    if (pg_request_ends(in)) return;
    pg_reply_free(reply);
    bad_arguments(reply);
}

static void people(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    struct pg_reader *head = &in->head, home, place;
    size_t bytes;
    uint16_t measure;
    const char *name = pg_take_text(head, &bytes);
    uint8_t age = (uint8_t)pg_take(head, 1);
    for (size_t i = pg_take_count(head, 10); i > 0; i--) copy_person(head, NULL, 2, 0, "");
    home = *head;
    copy_optional_place(head, NULL, &measure);
    size_t many = pg_take_count(head, 10);
    pg_request_block(in, 0);
    pg_result_begin(&result, FOREIGN_PEOPLE_BLOCKS);
    pg_put(&result.head, 1, 1); /* Some(Box) */
    pg_put_text(&result.head, name, bytes);
    pg_put(&result.head, age, 1);
    pg_put(&result.head, many, 4);
    for (size_t i = 0; i < many; i++) copy_person(head, &result.head, 2, 0, "");
    copy_optional_place(&home, &result.head, &measure);
    place = *head;
    bool is = copy_optional_place(head, NULL, &measure);
    pg_put(&result.head, !is, 1); /* Ok or Err */
    if (is)
        pg_put(&result.head, measure, 2);
    else
        pg_put_text(&result.head, "no place", 8);
    pg_put(&result.head, is ? 2 : 1, 4);
    if (is) {
        pg_take_bool(&place); /* skips the flag of the option, which a list element does not have */
        copy_place(&place, &result.head);
    }
    pg_put(&result.head, FOREIGN_PLACE_NOWHERE, 4);
    pg_result_ends(&result, PG_OK, reply);
    if (pg_request_ends(in)) return;
    pg_reply_free(reply);
    bad_arguments(reply);
}

static void fail(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    uint32_t code = take_u32(&in->head), room = take_u32(&in->head);
    ENDS_OR_REFUSE();
    pg_result_begin(&result, FOREIGN_FAIL_BLOCKS);
    if (room) pg_put(&result.blocks[0], 1, 1);
    if (code == 1) {
        pg_put(&result.head, FOREIGN_FAILURE_CODE, 4);
        pg_put(&result.head, 7, 4);
    } else if (code > 1) {
        pg_put(&result.head, FOREIGN_FAILURE_SAID, 4);
        pg_put_text(&result.head, "no", 2);
    }
    pg_result_ends(&result, code ? PG_ERR : PG_OK, reply);
}

static void stop(struct pg_request *in, struct pg_reply *reply) {
    ENDS_OR_REFUSE();
    pg_refuse(reply, PG_MAY_HAVE_EXECUTED, PG_PANICKED, "stop");
}

static void mirror(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    size_t count = take_u32(&in->head), room = take_u32(&in->head);
    struct pg_reader from = pg_request_block(in, count);
    ENDS_OR_REFUSE(from);
    if (count > FOREIGN_MIRROR_FROM_MAX) {
        bad_arguments(reply);
        return;
    }
    pg_result_begin(&result, FOREIGN_MIRROR_BLOCKS);
    uint8_t *turned = pg_allocate(count);
    for (size_t i = 0; i < count; i++) turned[count - 1 - i] = from.bytes[i];
    pg_put_bytes(&result.blocks[0], turned, least(least(count, room), FOREIGN_MIRROR_INTO_MAX));
    free(turned);
    pg_put(&result.head, (uint32_t)sum(&from, 1), 4);
    pg_result_ends(&result, PG_OK, reply);
}

static void pause_for(struct pg_request *in, struct pg_reply *reply) {
    struct pg_result result;
    uint32_t ms = take_u32(&in->head);
    ENDS_OR_REFUSE();
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
    pg_result_begin(&result, FOREIGN_PAUSE_BLOCKS);
    pg_put(&result.head, ms, 4);
    pg_result_ends(&result, PG_OK, reply);
}

/* Counts the calls with a key, so that a call that is executed twice is detected. */
static void bump(struct pg_request *in, struct pg_reply *reply) {
    static struct {
        uint64_t key, count;
    } all[256];
    struct pg_result result;
    uint64_t key = (uint64_t)pg_take(&in->head, 8);
    ENDS_OR_REFUSE();
    size_t at = 0;
    while (at < LENGTH(all) - 1 && all[at].count && all[at].key != key) at++;
    all[at].key = key;
    all[at].count++;
    pg_result_begin(&result, FOREIGN_BUMP_BLOCKS);
    pg_put(&result.head, all[at].count, 8);
    pg_result_ends(&result, PG_OK, reply);
}

static void (*const PROCEDURES[FOREIGN_PROCEDURES])(struct pg_request *, struct pg_reply *) = {
    [FOREIGN_NOTHING] = nothing, [FOREIGN_PRIMITIVES] = primitives, [FOREIGN_TEXTS] = texts,
    [FOREIGN_SUMS] = sums,       [FOREIGN_LEND] = lend,             [FOREIGN_FILL] = fill,
    [FOREIGN_CHANGE] = change,   [FOREIGN_PEOPLE] = people,         [FOREIGN_FAIL] = fail,
    [FOREIGN_STOP] = stop,       [FOREIGN_MIRROR] = mirror,         [FOREIGN_PAUSE] = pause_for,
    [FOREIGN_BUMP] = bump,
};

static void serve(struct pg_request *request, struct pg_reply *reply) {
    PROCEDURES[request->procedure](request, reply);
}

int main(int argc, char **argv) {
    static const struct pg_export FOREIGN = {
        .name = "foreign", .interface = FOREIGN_NAME, .canonical = FOREIGN_CANONICAL,
        .version = FOREIGN_VERSION, .digest = FOREIGN_DIGEST, .procedures = FOREIGN_PROCEDURES,
        .serve = serve};
    uint16_t tcp, udp;
    if (argc > 1) pg_lose = (unsigned)atoi(argv[1]);
    struct pg_stream_server *streams = pg_stream_listen(&FOREIGN, &tcp);
    struct pg_exchange_server *packets = pg_exchange_listen(&FOREIGN, &udp);
    if (!streams || !packets) return 1;
    printf("tcp %u udp %u\n", (unsigned)tcp, (unsigned)udp);
    fflush(stdout);
    for (;;) {
        struct pollfd fds[128] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = pg_exchange_fd(packets), .events = POLLIN}};
        size_t count = 2 + pg_stream_fds(streams, fds + 2, LENGTH(fds) - 2);
        char input[64];
        if (poll(fds, count, -1) < 0) continue;
        if (fds[0].revents && read(STDIN_FILENO, input, sizeof input) <= 0) break;
        if (fds[1].revents) pg_exchange_ready(packets);
        pg_stream_ready(streams, fds + 2, count - 2);
    }
    pg_stream_goodbye(streams);
    pg_exchange_end(packets);
    return 0;
}
