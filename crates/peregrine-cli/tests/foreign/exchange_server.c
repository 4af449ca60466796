/* The server end of the packet exchange over UDP (docs/PROTOCOL.md, part 9). It has no timers. Each
 * record follows the rules of "The life of a call". One thread runs everything, so no packet is
 * handled while a record is Executing or Quitting. */
#include "peregrine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACES 256u
#define PIECE 1408u
#define CREDITS 64u

enum state { IDLE, ASSEMBLING, REPLIED };

struct record {
    bool used, checks, said_missing;
    enum state state;
    uint8_t secret[12];
    struct sockaddr_in last; /* source of the last accepted packet */
    uint32_t sequence;
    uint16_t serial, echo;
    struct pg_packet shape; /* the first fragment of the call that arrived, for its header */
    struct pg_assembly call;
    struct pg_reply reply;
    struct pg_sender sender;
    uint64_t heard_us;
};

struct pg_exchange_server {
    const struct pg_export *of;
    int fd;
    uint8_t key[16];
    uint64_t table, incarnation, since_us;
    uint32_t generations[PLACES]; /* number of results that each place has forgotten */
    struct record records[PLACES];
};

struct pg_exchange_server *pg_exchange_listen(const struct pg_export *of, uint16_t *port) {
    struct pg_exchange_server *server = pg_allocate(sizeof *server);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int room = 1 << 20;
    server->of = of;
    server->since_us = pg_now_us();
    pg_random(server->key, sizeof server->key);
    pg_random(&server->table, sizeof server->table);
    pg_random(&server->incarnation, sizeof server->incarnation);
    server->fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(server->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (server->fd < 0 || bind(server->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(server->fd, (struct sockaddr *)&at, &bytes) != 0) {
        free(server);
        return NULL;
    }
    *port = ntohs(at.sin_port);
    return server;
}

int pg_exchange_fd(const struct pg_exchange_server *server) { return server->fd; }

/* ---- records ---- */

static void drop_call(struct record *record) {
    pg_assembly_free(&record->call);
    if (record->state == ASSEMBLING) record->state = IDLE;
}

static void acknowledged(struct record *record) {
    pg_sender_free(&record->sender);
    pg_reply_free(&record->reply);
    if (record->state == REPLIED) record->state = IDLE;
}

/* Forgets a record, which revokes its handle. If its result is not acknowledged, the client may not
 * have received it, so the generation of the place counts a forgotten result. */
static void forget(struct pg_exchange_server *server, struct record *record) {
    if (record->state == REPLIED) server->generations[record - server->records]++;
    drop_call(record);
    acknowledged(record);
    memset(record, 0, sizeof *record);
}

static struct record *free_record(struct pg_exchange_server *server) {
    static const uint64_t kept_us[] = {
        [IDLE] = 1000000, [ASSEMBLING] = 10000000, [REPLIED] = 60000000};
    struct record *oldest = NULL;
    for (struct record *one = server->records; one < server->records + PLACES; one++) {
        if (!one->used) return one;
        bool may = pg_now_us() - one->heard_us > kept_us[one->state];
        if (may && (!oldest || one->heard_us < oldest->heard_us)) oldest = one;
    }
    if (oldest) forget(server, oldest);
    return oldest;
}

static struct pg_packet packet_of(const struct pg_exchange_server *server, struct record *to,
                                  uint8_t kind, uint32_t sequence) {
    struct pg_packet packet = {.kind = kind, .place = (uint32_t)(to - server->records),
                               .sequence = sequence, .serial = ++to->serial, .echo = to->echo,
                               .credits = CREDITS};
    memcpy(packet.secret, to->secret, 12);
    return packet;
}

/* ---- binding: the server keeps no state for a HELLO ---- */

static void answer_binding(struct pg_exchange_server *server, const struct sockaddr_in *to,
                           const struct pg_packet *asked, uint8_t kind, const uint8_t *body) {
    struct pg_packet packet = {.kind = kind, .flags = PG_CHECKED, .echo = asked->serial,
                               .body = body, .body_bytes = PG_BINDING_BODY};
    memcpy(packet.secret, asked->secret, 12);
    pg_packet_send(server->fd, to, &packet);
}

static void cookie(const struct pg_exchange_server *server, const struct sockaddr_in *of,
                   const uint8_t nonce[12], uint64_t minute, uint8_t out[16]) {
    uint8_t bytes[8 + 12 + 4 + 2];
    pg_set_le64(bytes, minute);
    memcpy(bytes + 8, nonce, 12);
    memcpy(bytes + 20, &of->sin_addr, 4);
    memcpy(bytes + 24, &of->sin_port, 2);
    pg_siphash(server->key, bytes, sizeof bytes, out);
}

static void bind_asked(struct pg_exchange_server *server, const struct pg_packet *packet,
                       const struct sockaddr_in *from) {
    const uint8_t *asked = packet->body;
    uint8_t body[PG_BINDING_BODY] = {0}, good[16];
    uint64_t minute = pg_now_us() / 60000000;
    cookie(server, from, packet->secret, minute, good);
    if (memcmp(good, asked, 16) != 0 && minute > 0) {
        uint8_t before[16];
        cookie(server, from, packet->secret, minute - 1, before);
        if (memcmp(before, asked, 16) != 0) {
            memcpy(body, good, 16);
            answer_binding(server, from, packet, PG_COOKIE, body);
            return;
        }
    }
    const struct pg_export *of = server->of;
    uint32_t flags = pg_le32(asked + 32), piece = 16 * (uint32_t)pg_le16(asked + 38);
    size_t name = pg_le16(asked + 46), handles = pg_le16(asked + 36), given = 0;
    uint32_t kind = 0;
    const char *why = "";
    if (name != strlen(of->name) || memcmp(asked + 48, of->name, name) != 0)
        kind = PG_NOT_FOUND, why = "no export has this name";
    else if (!(flags & 1) && memcmp(asked + 16, of->digest, 16) != 0)
        kind = PG_INTERFACE_MISMATCH, why = "the interfaces differ";
    if (piece < 512) return;
    for (; kind == 0 && given < handles && given < 16; given++) {
        struct record *record = free_record(server);
        if (!record) break;
        *record = (struct record){.used = true, .last = *from, .checks = flags & 2,
                                  .heard_us = pg_now_us()};
        pg_random(record->secret, 12);
        record->sequence = pg_le32(record->secret + 8);
        uint32_t place = (uint32_t)(record - server->records);
        pg_set_le32(body + 48 + 20 * given, place);
        pg_set_le32(body + 52 + 20 * given, server->generations[place]);
        memcpy(body + 56 + 20 * given, record->secret, 12);
    }
    if (kind == 0 && given == 0) kind = PG_EXHAUSTED, why = "too many callers";
    if (kind) {
        pg_set_le32(body, kind);
        pg_set_le16(body + 4, (uint16_t)strlen(why));
        memcpy(body + 6, why, strlen(why));
        answer_binding(server, from, packet, PG_UNBOUND, body);
        return;
    }
    pg_set_le64(body, server->table);
    pg_set_le64(body + 8, server->incarnation);
    memcpy(body + 16, of->digest, 16);
    pg_set_le32(body + 32, (flags & 2) | (PG_HOST_BIG ? 4 : 0));
    pg_set_le16(body + 36, (uint16_t)given);
    pg_set_le16(body + 38, (uint16_t)((piece < PIECE ? piece : PIECE) / 16));
    pg_set_le32(body + 40, PG_MESSAGE_MAX);
    pg_set_le16(body + 44, CREDITS);
    answer_binding(server, from, packet, PG_BOUND_PACKET, body);
}

/* Refuses a client of another version, in a packet of that version, with a text that names both. */
static void refuse_version(const struct pg_exchange_server *server, const struct pg_packet *asked,
                           uint8_t version, const struct sockaddr_in *to) {
    if (asked->kind != PG_HELLO && asked->kind != PG_BIND_PACKET) return;
    uint8_t body[PG_BINDING_BODY] = {0};
    int bytes = snprintf((char *)body + 6, sizeof body - 6,
                         "the server speaks version %u of the packet protocol, this client version "
                         "%u: use the same release on both sides",
                         PG_PACKET_VERSION, version);
    pg_set_le32(body, PG_PROTOCOL_MISMATCH);
    pg_set_le16(body + 4, (uint16_t)bytes);
    struct pg_packet packet = {.kind = PG_UNBOUND, .flags = PG_CHECKED, .echo = asked->serial,
                               .body = body, .body_bytes = sizeof body};
    memcpy(packet.secret, asked->secret, 12);
    pg_packet_send_as(version, server->fd, to, &packet);
}

/* ---- calls ---- */

struct sending {
    struct pg_exchange_server *server;
    struct record *record;
};

static uint16_t emit_result(void *of, uint32_t fragment, uint16_t flags) {
    const struct sending *sending = of;
    struct record *record = sending->record;
    const struct pg_reply *reply = &record->reply;
    struct pg_packet packet = packet_of(sending->server, record, PG_RESULT, record->sequence);
    uint32_t at;
    packet.flags = flags | (record->checks ? PG_CHECKED : 0);
    packet.procedure = reply->answer;
    packet.total = record->sender.shape.total;
    packet.head = (uint32_t)reply->head;
    packet.copied = (uint32_t)reply->head_at;
    packet.fragment = fragment;
    packet.piece = record->sender.shape.piece;
    packet.body_bytes = pg_fragment_range(&record->sender.shape, fragment, &at);
    packet.body = packet.body_bytes ? reply->message.bytes + at : NULL;
    pg_packet_send(sending->server->fd, &record->last, &packet);
    return packet.serial;
}

static void have_call(struct pg_exchange_server *server, struct record *to,
                      const struct pg_packet *asked) {
    struct pg_packet have = packet_of(server, to, PG_HAVE_CALL, asked->sequence);
    uint8_t bitmap[128];
    have.piece = asked->piece; /* unless changed below: no fragment has arrived */
    if (asked->sequence == to->sequence && to->state == REPLIED)
        have.flags = PG_ALL | PG_REPLIED_FLAG;
    else if (asked->sequence == to->sequence && to->state == ASSEMBLING) {
        pg_assembly_have(&to->call, &have, bitmap);
        to->said_missing = to->call.next != to->call.end;
    }
    pg_packet_send(server->fd, &to->last, &have);
}

static void let_go(struct pg_exchange_server *server, struct record *to) {
    struct pg_packet packet = packet_of(server, to, PG_LET_GO, to->sequence);
    packet.credits = 0;
    pg_packet_send(server->fd, &to->last, &packet);
}

static uint32_t callers(const struct pg_exchange_server *server) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACES; i++) count += server->records[i].used;
    return count;
}

static void send_result(struct pg_exchange_server *server, struct record *of, uint32_t piece) {
    struct sending sending = {server, of};
    struct pg_shape shape;
    if (!pg_shape_of(&shape, (uint32_t)of->reply.message.count, piece)) return;
    of->state = REPLIED;
    pg_sender_begin(&of->sender, of->reply.message.bytes, shape, of->shape.credits);
    pg_sender_go_on(&of->sender, emit_result, &sending);
}

/* Runs a complete call. A duplicate does not run, because the record has the sequence number of
 * the call. */
static void run(struct pg_exchange_server *server, struct record *record) {
    const struct pg_packet *shape = &record->shape;
    struct pg_reply *reply = &record->reply;
    const uint8_t *message = record->call.message + shape->extensions;
    if (shape->copied < shape->extensions) {
        pg_refuse(reply, PG_NOT_EXECUTED, PG_BAD_ARGUMENTS, "the message has invalid lengths");
    } else if (shape->procedure == PG_DESCRIBE) {
        *reply = (struct pg_reply){0};
        pg_describe(server->of, (pg_now_us() - server->since_us) / 1000, callers(server),
                    &reply->message);
        reply->head = reply->message.count;
    } else {
        pg_serve(server->of, shape->procedure, message, shape->head,
                 shape->copied - shape->extensions, shape->total - shape->extensions, reply);
    }
    uint32_t piece = record->call.shape.piece;
    drop_call(record);
    send_result(server, record, piece);
}

static void begin(struct pg_exchange_server *server, struct record *record,
                  const struct pg_packet *packet) {
    struct pg_shape shape;
    acknowledged(record);
    drop_call(record);
    record->sequence = packet->sequence;
    record->shape = *packet;
    record->said_missing = false;
    if (!pg_shape_of(&shape, packet->total, packet->piece)) return;
    if (pg_assembly_begin(&record->call, shape)) {
        record->state = ASSEMBLING;
        return;
    }
    pg_refuse(&record->reply, PG_NOT_EXECUTED, PG_TOO_LARGE, "the message is too large");
    send_result(server, record, packet->piece);
}

static bool same_call(const struct pg_packet *a, const struct pg_packet *b) {
    return a->procedure == b->procedure && a->total == b->total && a->head == b->head &&
           a->copied == b->copied && a->extensions == b->extensions;
}

static void call_comes(struct pg_exchange_server *server, struct record *record,
                       const struct pg_packet *packet, bool newer) {
    if (record->checks && !(packet->flags & PG_CHECKED)) return;
    if (newer) begin(server, record, packet);
    if (record->state == REPLIED && !newer && packet->flags & PG_PLEASE)
        have_call(server, record, packet);
    if (record->state != ASSEMBLING || !same_call(&record->shape, packet)) return;
    if (packet->piece < record->call.shape.piece) begin(server, record, packet);
    if (packet->piece != record->call.shape.piece) return;
    pg_assembly_place(&record->call, packet);
    if (record->call.whole) {
        run(server, record);
        return;
    }
    bool holes = record->call.next != record->call.end;
    if (packet->flags & PG_PLEASE || packet->fragment == 0 || (record->said_missing && !holes))
        have_call(server, record, packet);
}

static void refuse(struct pg_exchange_server *server, const struct pg_packet *packet,
                   const struct sockaddr_in *to, bool others) {
    if (packet->kind == PG_BYE || (packet->kind == PG_HAVE_RESULT && packet->flags & PG_ALL))
        return;
    struct pg_packet refused = {.kind = PG_REFUSED, .place = packet->place,
                                .sequence = packet->sequence, .echo = packet->serial,
                                .flags = others ? PG_ELSEWHERE : 0, .table = server->table};
    if (packet->place < PLACES) refused.copied = server->generations[packet->place];
    memcpy(refused.secret, packet->secret, 12);
    pg_packet_send(server->fd, to, &refused);
}

static void packet_comes(struct pg_exchange_server *server, const struct pg_packet *packet,
                         const struct sockaddr_in *from) {
    uint8_t body[PG_BINDING_BODY] = {0};
    switch (packet->kind) {
    case PG_HELLO:
        cookie(server, from, packet->secret, pg_now_us() / 60000000, body);
        answer_binding(server, from, packet, PG_COOKIE, body);
        return;
    case PG_BIND_PACKET: bind_asked(server, packet, from); return;
    case PG_CALL:
    case PG_HAVE_RESULT:
    case PG_PROBE:
    case PG_QUIT:
    case PG_BYE: break;
    default: return;
    }
    struct record *record = packet->place < PLACES ? &server->records[packet->place] : NULL;
    if (!record || !record->used || memcmp(record->secret, packet->secret, 12) != 0) {
        refuse(server, packet, from, false);
        return;
    }
    if (record->last.sin_addr.s_addr != from->sin_addr.s_addr) {
        refuse(server, packet, from, true);
        return;
    }
    int32_t ahead = (int32_t)(packet->sequence - record->sequence);
    if (packet->kind == PG_BYE) {
        acknowledged(record); /* the client does not need the result any more */
        forget(server, record);
        return;
    }
    if (ahead < 0 || (ahead > 0 && packet->kind == PG_HAVE_RESULT)) return;
    record->last = *from;
    record->echo = packet->serial;
    record->heard_us = pg_now_us();
    struct sending sending = {server, record};
    switch (packet->kind) {
    case PG_CALL: call_comes(server, record, packet, ahead > 0); break;
    case PG_PROBE:
        if (ahead > 0) acknowledged(record), drop_call(record);
        if (ahead > 0 || record->state != IDLE) have_call(server, record, packet);
        break;
    case PG_HAVE_RESULT:
        if (record->state != REPLIED) break;
        if (packet->flags & PG_ALL)
            acknowledged(record);
        else
            pg_sender_heard(&record->sender, packet, emit_result, &sending);
        break;
    case PG_QUIT:
        acknowledged(record), drop_call(record);
        record->sequence = packet->sequence;
        let_go(server, record);
        break;
    }
}

/* Receives all packets that the socket has. */
void pg_exchange_ready(struct pg_exchange_server *server) {
    static uint8_t bytes[PG_PACKET_MAX];
    for (;;) {
        struct sockaddr_in from;
        socklen_t from_bytes = sizeof from;
        ssize_t got = recvfrom(server->fd, bytes, sizeof bytes, MSG_DONTWAIT,
                               (struct sockaddr *)&from, &from_bytes);
        if (got < 0) return;
        struct pg_packet packet;
        uint8_t version;
        if (pg_packet_unpack(&packet, bytes, (size_t)got))
            packet_comes(server, &packet, &from);
        else if ((version = pg_packet_of_another(&packet, bytes, (size_t)got)) != 0)
            refuse_version(server, &packet, version, &from);
    }
}

void pg_exchange_end(struct pg_exchange_server *server) {
    for (uint32_t i = 0; i < PLACES; i++) forget(server, &server->records[i]);
    close(server->fd);
    free(server);
}
