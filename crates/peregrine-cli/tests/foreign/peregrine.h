/* Peregrine in C: values, the stream path and the packet exchange, for clients and servers.
 *
 * This code was written from docs/REPRESENTATION.md ("R" below) and docs/PROTOCOL.md ("P") alone.
 * It shows that these documents are sufficient, and is an example for other implementations. It has
 * one thread, and one call at a time per binding. The code does not depend on the machine's byte
 * order: it writes and reads values byte by byte, in the byte order of the binding. */
#ifndef PEREGRINE_H
#define PEREGRINE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PG_HOST_BIG (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
#define PG_ROUND16(n) (((n) + 15) & ~(size_t)15)
#define PG_MESSAGE_MAX ((size_t)4 << 20) /* maximum message of both sides */
#define PG_MESSAGE_WANTED (((size_t)1 << 20) + 64) /* message size that the client requests */
#define PG_NAME_MAX 64
#define PG_PING 0xffffffffu
#define PG_DESCRIBE 0xfffffffeu /* over datagrams; a stream has a separate message */

typedef unsigned __int128 pg_u128;

/* Answers and kinds of refusal (R 5). */
enum { PG_OK, PG_ERR, PG_NOT_EXECUTED, PG_MAY_HAVE_EXECUTED };
enum {
    PG_NOT_FOUND = 1, PG_INTERFACE_MISMATCH = 5, PG_PROTOCOL_MISMATCH = 6, PG_EXHAUSTED = 7,
    PG_NO_SUCH_PROCEDURE = 9, PG_BAD_ARGUMENTS = 10, PG_TOO_LARGE = 11, PG_PANICKED = 14,
    PG_WITHDRAWN = 18,
};

/* The outcome of a call at the client. */
enum pg_outcome { PG_REPLIED, PG_FAILED_NOT_EXECUTED, PG_FAILED_MAYBE, PG_TIMED_OUT };

/* ---- wire.c: headers, which are always little-endian ---- */

uint16_t pg_le16(const uint8_t *at);
uint32_t pg_le32(const uint8_t *at);
uint64_t pg_le64(const uint8_t *at);
void pg_set_le16(uint8_t *at, uint16_t value);
void pg_set_le32(uint8_t *at, uint32_t value);
void pg_set_le64(uint8_t *at, uint64_t value);
uint32_t pg_crc32c(const uint8_t *bytes, size_t count);
void pg_siphash(const uint8_t key[16], const uint8_t *bytes, size_t count, uint8_t out[16]);
void pg_random(void *bytes, size_t count);
uint64_t pg_now_us(void);
void *pg_allocate(size_t bytes);

/* The kinds and the header of the messages of a stream (P 8). */
enum {
    PG_BIND = 1, PG_DESCRIPTION_WANTED, PG_UNBIND, PG_CALL_MESSAGE, PG_ABANDON,
    PG_BOUND = 65, PG_REFUSAL, PG_DESCRIPTION, PG_REVOKED, PG_GOODBYE, PG_REPLY_MESSAGE,
};
#define PG_STREAM_HEADER 32
struct pg_stream_header {
    uint32_t body, number, binding, procedure, head, copied, extensions;
    uint8_t kind, version;
};
void pg_stream_pack(const struct pg_stream_header *header, uint8_t out[PG_STREAM_HEADER]);
bool pg_stream_unpack(struct pg_stream_header *header, const uint8_t in[PG_STREAM_HEADER]);
size_t pg_stream_rest(const struct pg_stream_header *header);

/* The kinds, the flags and the header of packets (P 9). */
enum {
    PG_CALL = 1, PG_RESULT, PG_HAVE_CALL, PG_HAVE_RESULT, PG_PROBE, PG_QUIT, PG_LET_GO, PG_REFUSED,
    PG_BYE, PG_HELLO, PG_COOKIE, PG_BIND_PACKET, PG_BOUND_PACKET, PG_UNBOUND, PG_ASK,
};
enum {
    PG_PLEASE = 1, PG_RESENT = 2, PG_CHECKED = 4, PG_ALL = 8, PG_REPLIED_FLAG = 16,
    PG_ELSEWHERE = 32,
};
#ifndef PG_PACKET_VERSION /* tests also compile peers of other versions */
#define PG_PACKET_VERSION 3
#endif
#define PG_PACKET_HEADER 64
#define PG_BINDING_BODY 448
#define PG_PACKET_MAX (PG_PACKET_HEADER + 65440)
struct pg_packet {
    uint8_t kind;
    uint8_t secret[12];
    uint16_t flags, serial, echo, credits, extensions;
    uint32_t place, sequence;
    uint32_t procedure;           /* in a RESULT: the answer */
    uint32_t total, head, copied; /* in a RESULT, `copied` is the offset of the head */
    uint32_t fragment, piece;
    uint64_t table; /* only in REFUSED, instead of `total` and `head`; `copied` is the generation */
    const uint8_t *body;
    size_t body_bytes;
};
size_t pg_packet_pack(const struct pg_packet *packet, uint8_t out[PG_PACKET_MAX]);
bool pg_packet_unpack(struct pg_packet *packet, const uint8_t *in, size_t bytes);
/* Returns the version of a binding packet of another version, or 0 for any other packet. */
uint8_t pg_packet_of_another(struct pg_packet *packet, const uint8_t *in, size_t bytes);
/* For tests: one of `pg_lose` sent packets is dropped. If it is 0, no packet is dropped. */
extern unsigned pg_lose;
void pg_packet_send(int fd, const struct sockaddr_in *to, const struct pg_packet *packet);
/* Sends a packet of another version. Only binding packets have the same format in all versions. */
void pg_packet_send_as(uint8_t version, int fd, const struct sockaddr_in *to,
                       const struct pg_packet *packet);

/* ---- values.c: values, and the messages of calls and replies ---- */

struct pg_writer {
    uint8_t *bytes;
    size_t count, room;
    bool big;
};
void pg_align(struct pg_writer *to, size_t alignment);
void pg_put(struct pg_writer *to, pg_u128 value, size_t bytes);
void pg_put_bytes(struct pg_writer *to, const void *bytes, size_t count);
void pg_put_f32(struct pg_writer *to, float value);
void pg_put_f64(struct pg_writer *to, double value);
void pg_put_text(struct pg_writer *to, const char *text, size_t bytes);
void pg_writer_free(struct pg_writer *one);

struct pg_reader {
    const uint8_t *bytes;
    size_t count, at;
    bool big, bad;
};
pg_u128 pg_take(struct pg_reader *from, size_t bytes);
void pg_take_align(struct pg_reader *from, size_t alignment);
bool pg_take_bool(struct pg_reader *from);
uint32_t pg_take_char(struct pg_reader *from);
float pg_take_f32(struct pg_reader *from);
double pg_take_f64(struct pg_reader *from);
const char *pg_take_text(struct pg_reader *from, size_t *bytes);
size_t pg_take_count(struct pg_reader *from, size_t element_bytes_min);
bool pg_utf8(const uint8_t *bytes, size_t count);
bool pg_all_taken(const struct pg_reader *from);

/* A call at the client: the head, then copied blocks, then lent blocks (R 4). */
struct pg_call {
    struct pg_writer message;
    uint32_t procedure;
    size_t head, copied;
    bool lends;
};
void pg_call_begin(struct pg_call *call, uint32_t procedure, bool big);
void pg_call_head_ends(struct pg_call *call);
struct pg_writer *pg_call_block(struct pg_call *call);
struct pg_writer *pg_call_lent(struct pg_call *call);
void pg_call_ends(struct pg_call *call);
void pg_call_free(struct pg_call *call);

/* A received call at the server. */
struct pg_request {
    uint32_t procedure;
    struct pg_reader head;
    const uint8_t *message;
    size_t total, next;
    bool big, bad;
};
bool pg_request_open(struct pg_request *request, uint32_t procedure, const uint8_t *message,
                     size_t head, size_t copied, size_t total);
struct pg_reader pg_request_block(struct pg_request *request, size_t bytes);
bool pg_request_ends(const struct pg_request *request);

/* A reply. With PG_OK, it has a table of the filled bytes per block, a head and blocks (R 5, P 8). */
#define PG_BLOCKS_MAX 8
struct pg_reply {
    uint32_t answer;
    struct pg_writer message;
    size_t head_at, head;
};
struct pg_result {
    struct pg_writer head, blocks[PG_BLOCKS_MAX];
    size_t block_count;
};
void pg_result_begin(struct pg_result *result, size_t block_count);
void pg_result_ends(struct pg_result *result, uint32_t answer, struct pg_reply *reply);
void pg_refuse(struct pg_reply *reply, uint32_t answer, uint32_t kind, const char *why);
void pg_reply_free(struct pg_reply *reply);

struct pg_returned {
    struct pg_reader head, blocks[PG_BLOCKS_MAX];
};
struct pg_offer { /* the capacity that the call offers for a block of the reply */
    size_t elements, element_bytes;
};
bool pg_reply_open(const struct pg_reply *reply, bool big, const struct pg_offer *offers,
                   size_t block_count, struct pg_returned *returned);
/* Returns the kind of a refusal, or 0 if the reply is no valid refusal. */
uint32_t pg_reply_refusal(const struct pg_reply *reply, const char **why, size_t *bytes);

/* ---- what a server exports ---- */

struct pg_export {
    const char *name, *interface, *canonical;
    uint32_t version;
    uint8_t digest[16];
    size_t procedures;
    void (*serve)(struct pg_request *request, struct pg_reply *reply);
};
/* Runs a call, answers a ping, or refuses an invalid call. */
void pg_serve(const struct pg_export *of, uint32_t procedure, const uint8_t *message, size_t head,
              size_t copied, size_t total, struct pg_reply *reply);
void pg_describe(const struct pg_export *of, uint64_t age_ms, uint32_t bindings,
                 struct pg_writer *to);

/* ---- stream.c ---- */

struct pg_stream {
    int fd;
    uint32_t next, binding, abandoned[16];
    size_t abandoned_count;
    bool big, ended, goodbye, revoked;
    uint64_t largest;
    uint8_t *body; /* of the last received message */
    struct pg_stream_header header;
};
bool pg_stream_connect(struct pg_stream *stream, uint16_t port);
bool pg_stream_describe(struct pg_stream *stream, const char *name);
bool pg_stream_bind(struct pg_stream *stream, const char *name, const uint8_t digest[16]);
enum pg_outcome pg_stream_call(struct pg_stream *stream, const struct pg_call *call,
                               struct pg_reply *reply, unsigned deadline_ms);
void pg_stream_close(struct pg_stream *stream);

struct pg_stream_server;
struct pg_stream_server *pg_stream_listen(const struct pg_export *of, uint16_t *port);
struct pollfd;
size_t pg_stream_fds(struct pg_stream_server *server, struct pollfd *fds, size_t room);
void pg_stream_ready(struct pg_stream_server *server, const struct pollfd *fds, size_t count);
void pg_stream_goodbye(struct pg_stream_server *server);

/* ---- fragments.c: fragmentation and reassembly of messages (P 9) ---- */

struct pg_shape {
    uint32_t total, piece, count;
};
bool pg_shape_of(struct pg_shape *shape, uint32_t total, uint32_t piece);
uint32_t pg_fragment_range(const struct pg_shape *shape, uint32_t fragment, uint32_t *at);
uint32_t pg_position(const struct pg_shape *shape, uint32_t fragment);

struct pg_sender {
    struct pg_shape shape;
    const uint8_t *message;
    uint32_t acknowledged, sent, credits;
    uint16_t last, last_again;
    bool again;
    uint8_t *had; /* a bit for each position that the receiver has */
};
/* Sends one fragment with these additional flags; returns its serial. */
typedef uint16_t (*pg_emit)(void *of, uint32_t fragment, uint16_t flags);
void pg_sender_begin(struct pg_sender *sender, const uint8_t *message, struct pg_shape shape,
                     uint32_t credits);
void pg_sender_go_on(struct pg_sender *sender, pg_emit emit, void *of);
void pg_sender_heard(struct pg_sender *sender, const struct pg_packet *have, pg_emit emit, void *of);
void pg_sender_free(struct pg_sender *sender);

struct pg_assembly {
    struct pg_shape shape;
    uint8_t *message, *have;
    uint32_t next, end; /* the first missing position; one after the last received one */
    bool whole;
};
bool pg_assembly_begin(struct pg_assembly *assembly, struct pg_shape shape);
bool pg_assembly_place(struct pg_assembly *assembly, const struct pg_packet *packet);
/* Fills in the fields of a HAVE for this message; `bitmap` has space for 128 bytes. */
void pg_assembly_have(const struct pg_assembly *assembly, struct pg_packet *have, uint8_t *bitmap);
void pg_assembly_free(struct pg_assembly *assembly);

/* ---- exchange_client.c ---- */

struct pg_exchange {
    int fd;
    uint32_t place, generation, sequence, piece, largest;
    uint8_t secret[12];
    uint16_t serial, echo, credits;
    uint64_t table, incarnation;
    uint64_t heard_us, round_us; /* time of the last packet from the server; a round trip */
    bool big, owes, captured, ended;
    char why[PG_BINDING_BODY]; /* why binding failed; empty if the server gave no reason */
};
bool pg_exchange_bind(struct pg_exchange *exchange, uint16_t port, const char *name,
                      const uint8_t digest[16]);
enum pg_outcome pg_exchange_call(struct pg_exchange *exchange, const struct pg_call *call,
                                 struct pg_reply *reply, unsigned deadline_ms);
/* Whether the server has been silent so long that the next call begins with a probe. */
bool pg_exchange_paused(const struct pg_exchange *exchange);
/* Acknowledges the last result, if no later call has. */
void pg_exchange_settle(struct pg_exchange *exchange);
void pg_exchange_close(struct pg_exchange *exchange);

/* ---- exchange_server.c ---- */

struct pg_exchange_server;
struct pg_exchange_server *pg_exchange_listen(const struct pg_export *of, uint16_t *port);
int pg_exchange_fd(const struct pg_exchange_server *server);
void pg_exchange_ready(struct pg_exchange_server *server);
void pg_exchange_end(struct pg_exchange_server *server);

#endif
