/* The client end of the packet exchange over UDP (docs/PROTOCOL.md, part 9), with one handle and
 * one call at a time. Only the client has timers; when one fires, the client sends a question. */
#include "peregrine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE 1408u /* fits an Ethernet frame with all headers */
#define CREDITS 64u /* pieces that fit the buffer of the socket */
#define ASK_FIRST_US 20000u
#define ASK_US 200000u
#define ASK_WORKING_US 2000000u
#define ASKED_MAX 10u
#define ASK_ROOM_US 400000u   /* interval of probes while the server has no memory for a call */
#define PAUSE_ROUNDS 32u      /* round trips of silence before a call begins with a probe */
#define PAUSE_US 10000u       /* minimum silence before such a probe */
#define PAUSE_US_MAX 200000u  /* maximum silence without a probe; an early probe does no harm */
#define EXTENSIONS 16u

static struct pg_packet packet_of(struct pg_exchange *exchange, uint8_t kind) {
    struct pg_packet packet = {.kind = kind, .place = exchange->place,
                               .sequence = exchange->sequence, .serial = ++exchange->serial,
                               .echo = exchange->echo, .piece = exchange->piece,
                               .credits = CREDITS};
    memcpy(packet.secret, exchange->secret, 12);
    return packet;
}

/* Returns 1 for a packet of this handle, 0 after `until_us`, -1 if no socket has the port, and -2
 * if the server answered the HELLO of the previous version. */
static int receive(struct pg_exchange *exchange, struct pg_packet *packet, uint64_t until_us) {
    static uint8_t bytes[PG_PACKET_MAX];
    for (;;) {
        uint64_t now = pg_now_us();
        struct pollfd one = {.fd = exchange->fd, .events = POLLIN};
        int ready = poll(&one, 1, until_us <= now ? 0 : (int)((until_us - now + 999) / 1000));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return 0;
        ssize_t got = recv(exchange->fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == ECONNREFUSED) return -1;
        if (got < 0) continue;
        if (!pg_packet_unpack(packet, bytes, (size_t)got)) {
            uint8_t version = pg_packet_of_another(packet, bytes, (size_t)got);
            if (version == PG_PACKET_VERSION - 1 && packet->kind == PG_COOKIE &&
                memcmp(packet->secret, exchange->secret, 12) == 0)
                return -2;
            continue;
        }
        if (packet->place != exchange->place || memcmp(packet->secret, exchange->secret, 12) != 0)
            continue;
        if (packet->sequence != exchange->sequence) continue;
        exchange->heard_us = pg_now_us();
        return 1;
    }
}

/* ---- binding ---- */

static void send_binding(struct pg_exchange *exchange, uint8_t version, uint8_t kind,
                         const uint8_t *body) {
    struct pg_packet packet = packet_of(exchange, kind);
    packet.flags = PG_CHECKED;
    packet.piece = packet.credits = 0;
    packet.body = body;
    packet.body_bytes = PG_BINDING_BODY;
    pg_packet_send_as(version, exchange->fd, NULL, &packet);
}

bool pg_exchange_bind(struct pg_exchange *exchange, uint16_t port, const char *name,
                      const uint8_t digest[16]) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int room = 1 << 20;
    *exchange = (struct pg_exchange){.fd = socket(AF_INET, SOCK_DGRAM, 0)};
    setsockopt(exchange->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (connect(exchange->fd, (struct sockaddr *)&to, sizeof to) != 0) return false;

    /* Until the server grants a handle, the field of the secret has the nonce. */
    pg_random(exchange->secret, 12);
    uint8_t hello[PG_BINDING_BODY] = {0}, body[PG_BINDING_BODY] = {0};
    size_t name_bytes = strlen(name);
    if (name_bytes == 0 || name_bytes > PG_NAME_MAX) return false;
    memcpy(body + 16, digest, 16);
    pg_set_le16(body + 36, 1);
    pg_set_le16(body + 38, PIECE / 16);
    pg_set_le32(body + 40, PG_MESSAGE_WANTED);
    pg_set_le16(body + 44, CREDITS);
    pg_set_le16(body + 46, (uint16_t)name_bytes);
    memcpy(body + 48, name, name_bytes);

    bool cookie = false;
    uint64_t wait_us = 100000;
    for (int sent = 0; sent < 10;) {
        uint64_t now = pg_now_us(), until = now + wait_us;
        send_binding(exchange, PG_PACKET_VERSION, cookie ? PG_BIND_PACKET : PG_HELLO,
                     cookie ? body : hello);
        sent++;
        /* Servers before version 3 answer only their own version: tries the previous one. */
        if (!cookie && (sent == 3 || sent == 6))
            send_binding(exchange, PG_PACKET_VERSION - 1, PG_HELLO, hello);
        wait_us = wait_us < 800000 ? 2 * wait_us : 1000000;
        struct pg_packet packet;
        int got;
        while ((got = receive(exchange, &packet, until)) > 0) {
            exchange->echo = packet.serial;
            if (packet.kind == PG_UNBOUND) {
                size_t text = pg_le16(packet.body + 4);
                if (text > PG_BINDING_BODY - 6) text = PG_BINDING_BODY - 6;
                memcpy(exchange->why, packet.body + 6, text);
                return false;
            }
            if (packet.kind == PG_COOKIE) {
                memcpy(body, packet.body, 16);
                cookie = true;
                break;
            }
            exchange->round_us = exchange->heard_us - now;
            if (packet.kind == PG_BOUND_PACKET && cookie && pg_le16(packet.body + 36) >= 1) {
                exchange->table = pg_le64(packet.body);
                exchange->incarnation = pg_le64(packet.body + 8);
                exchange->big = pg_le32(packet.body + 32) & 4;
                exchange->piece = 16 * (uint32_t)pg_le16(packet.body + 38);
                exchange->largest = pg_le32(packet.body + 40);
                exchange->credits = pg_le16(packet.body + 44);
                exchange->place = pg_le32(packet.body + 48);
                exchange->generation = pg_le32(packet.body + 52);
                memcpy(exchange->secret, packet.body + 56, 12);
                exchange->sequence = pg_le32(exchange->secret + 8);
                return exchange->piece >= 512 && exchange->piece <= PIECE;
            }
        }
        if (got == -2)
            snprintf(exchange->why, sizeof exchange->why,
                     "the server speaks version %u of the packet protocol, this client version %u",
                     PG_PACKET_VERSION - 1, PG_PACKET_VERSION);
        if (got < 0) return false;
    }
    return false;
}

/* ---- a call ---- */

struct open_call {
    struct pg_exchange *exchange;
    const struct pg_call *call;
    uint8_t *message; /* extensions, then the message */
    struct pg_sender sender;
    struct pg_assembly result;
    struct pg_packet first; /* the first fragment of the result that arrived, for its header */
    bool asks_first;        /* no fragment of the call is sent before the server answers a probe */
    bool heard;             /* the server has the whole call, or has sent a part of the result */
    bool replied;
};

static uint16_t emit_call(void *of, uint32_t fragment, uint16_t flags) {
    struct open_call *open = of;
    struct pg_packet packet = packet_of(open->exchange, PG_CALL);
    uint32_t at;
    packet.flags = flags;
    packet.procedure = open->call->procedure;
    packet.total = open->sender.shape.total;
    packet.head = (uint32_t)open->call->head;
    packet.copied = (uint32_t)open->call->copied + EXTENSIONS;
    packet.extensions = EXTENSIONS;
    packet.fragment = fragment;
    packet.piece = open->sender.shape.piece;
    packet.body_bytes = pg_fragment_range(&open->sender.shape, fragment, &at);
    packet.body = open->message + at;
    pg_packet_send(open->exchange->fd, NULL, &packet);
    return packet.serial;
}

static void send_have_result(struct open_call *open, uint16_t flags) {
    struct pg_packet have = packet_of(open->exchange, PG_HAVE_RESULT);
    uint8_t bitmap[128];
    have.flags = flags;
    if (open->result.message) pg_assembly_have(&open->result, &have, bitmap);
    pg_packet_send(open->exchange->fd, NULL, &have);
}

static void ask(struct open_call *open) {
    if (open->replied || open->result.message) {
        send_have_result(open, PG_PLEASE);
        return;
    }
    struct pg_packet probe = packet_of(open->exchange, PG_PROBE);
    pg_packet_send(open->exchange->fd, NULL, &probe);
}

static void send_plain(struct pg_exchange *exchange, uint8_t kind) {
    struct pg_packet packet = packet_of(exchange, kind);
    packet.piece = packet.credits = 0;
    pg_packet_send(exchange->fd, NULL, &packet);
}

/* Places a fragment of the result; returns whether the result is complete. */
static bool result_comes(struct open_call *open, const struct pg_packet *packet, bool *have_due) {
    struct pg_shape shape;
    if (!pg_shape_of(&shape, packet->total, packet->piece)) return false;
    if (!open->result.message) {
        if (!pg_assembly_begin(&open->result, shape)) return false;
        open->first = *packet;
    }
    open->heard = true;
    pg_assembly_place(&open->result, packet);
    if (open->result.whole) return true;
    bool holes = open->result.next != open->result.end, please = packet->flags & PG_PLEASE;
    if (please && !holes)
        send_have_result(open, 0);
    else if (please || packet->fragment == 0)
        *have_due = true; /* sent when the socket has no more packets that may fill the holes */
    return false;
}

/* Returns the outcome of a refused call. The call was not executed if no fragment of it was sent,
 * or if the table that granted the handle refuses it and has forgotten no result since. */
static enum pg_outcome refused(const struct open_call *open, const struct pg_packet *packet) {
    const struct pg_exchange *exchange = open->exchange;
    if (open->asks_first) return PG_FAILED_NOT_EXECUTED;
    bool certain = !open->heard && !(packet->flags & PG_ELSEWHERE) &&
                   packet->table == exchange->table && packet->copied == exchange->generation;
    return certain ? PG_FAILED_NOT_EXECUTED : PG_FAILED_MAYBE;
}

/* Waits for the result, and sends a question after each interval of silence. */
static enum pg_outcome await(struct open_call *open, uint64_t deadline) {
    struct pg_exchange *exchange = open->exchange;
    uint64_t wait = ASK_FIRST_US, working = ASK_US, ask_at = pg_now_us() + wait;
    unsigned asked = 0, unreachable = 0;
    bool have_due = false;
    for (;;) {
        struct pg_packet packet;
        uint64_t until = have_due ? 0 : ask_at < deadline ? ask_at : deadline;
        int got = receive(exchange, &packet, until);
        uint64_t now = pg_now_us();
        if (got < 0 && ++unreachable == 3) return PG_FAILED_MAYBE;
        if (got <= 0 && have_due) {
            have_due = false;
            send_have_result(open, 0);
        } else if (got <= 0) {
            if (now >= deadline) return PG_TIMED_OUT;
            if (now < ask_at) continue;
            if (wait >= ASK_US && asked++ == ASKED_MAX) return PG_FAILED_MAYBE;
            ask(open);
            wait = 2 * wait < ASK_US ? 2 * wait : ASK_US;
            ask_at = now + wait;
        }
        if (got <= 0) continue;
        exchange->echo = packet.serial;
        unreachable = asked = 0;
        wait = ASK_FIRST_US;
        ask_at = now + wait;
        switch (packet.kind) {
        case PG_RESULT:
            if (result_comes(open, &packet, &have_due)) return PG_REPLIED;
            break;
        case PG_HAVE_CALL:
            if (packet.flags & PG_ALL) {
                open->heard = true;
                if (packet.flags & PG_REPLIED_FLAG) {
                    open->replied = true;
                } else {
                    ask_at = now + working;
                    wait = ASK_US;
                    working = 2 * working < ASK_WORKING_US ? 2 * working : ASK_WORKING_US;
                }
            } else if (open->heard) {
                break;
            } else if (packet.credits == 0) { /* no memory; the server reports when it has some */
                ask_at = now + ASK_ROOM_US;
            } else if (open->asks_first) {
                open->asks_first = false;
                pg_sender_go_on(&open->sender, emit_call, open);
            } else {
                pg_sender_heard(&open->sender, &packet, emit_call, open);
            }
            break;
        case PG_ASK: /* the procedure runs, and the server asks whether the client still waits */
            if (open->replied || open->result.message) break;
            open->heard = true;
            ask(open);
            ask_at = now + ASK_US;
            wait = ASK_US;
            break;
        case PG_REFUSED: return refused(open, &packet);
        default: break;
        }
    }
}

/* Waits until the server has released a handle whose call was given up; returns whether it has. */
static bool let_go(struct pg_exchange *exchange) {
    uint64_t wait = ASK_US;
    for (unsigned asked = 0; exchange->captured && asked < ASKED_MAX; asked++) {
        struct pg_packet packet;
        send_plain(exchange, PG_QUIT);
        int got = receive(exchange, &packet, pg_now_us() + wait);
        while (got > 0 && packet.kind != PG_LET_GO && packet.kind != PG_HAVE_CALL)
            got = packet.kind == PG_REFUSED ? -1 : receive(exchange, &packet, pg_now_us() + wait);
        if (got < 0) break;
        if (got == 0) continue;
        exchange->echo = packet.serial;
        exchange->captured = packet.kind != PG_LET_GO;
        asked = 0;
        if (exchange->captured) {
            /* The procedure still runs. Waits longer each round for the LET_GO at its end. */
            got = receive(exchange, &packet, pg_now_us() + wait);
            exchange->captured = got <= 0 || packet.kind != PG_LET_GO;
            wait = 2 * wait < ASK_WORKING_US ? 2 * wait : ASK_WORKING_US;
        }
    }
    return !exchange->captured;
}

bool pg_exchange_paused(const struct pg_exchange *exchange) {
    uint64_t pause = PAUSE_ROUNDS * exchange->round_us;
    if (pause < PAUSE_US) pause = PAUSE_US;
    if (pause > PAUSE_US_MAX) pause = PAUSE_US_MAX;
    return pg_now_us() - exchange->heard_us > pause;
}

enum pg_outcome pg_exchange_call(struct pg_exchange *exchange, const struct pg_call *call,
                                 struct pg_reply *reply, unsigned deadline_ms) {
    static const uint8_t unknown[EXTENSIONS] = {0x01, 0x70, 0, 0, 5, 0, 0, 0,
                                                'h', 'e', 'l', 'l', 'o'};
    struct open_call open = {.exchange = exchange, .call = call};
    struct pg_shape shape;
    size_t total = call->message.count + EXTENSIONS;
    *reply = (struct pg_reply){0};
    if (exchange->ended || total > PG_MESSAGE_MAX || total > exchange->largest || !let_go(exchange) ||
        !pg_shape_of(&shape, (uint32_t)total, exchange->piece))
        return PG_FAILED_NOT_EXECUTED;
    open.message = pg_allocate(total);
    memcpy(open.message, unknown, EXTENSIONS);
    if (call->message.count)
        memcpy(open.message + EXTENSIONS, call->message.bytes, call->message.count);

    exchange->sequence++;
    exchange->owes = false; /* this call acknowledges the last result */
    uint64_t now = pg_now_us();
    pg_sender_begin(&open.sender, open.message, shape, exchange->credits);
    open.asks_first = pg_exchange_paused(exchange);
    if (open.asks_first)
        ask(&open); /* a restarted server refuses the probe: the call was not executed */
    else
        pg_sender_go_on(&open.sender, emit_call, &open);
    enum pg_outcome outcome = await(&open, now + 1000 * (uint64_t)deadline_ms);

    if (outcome == PG_REPLIED) {
        const struct pg_packet *first = &open.first;
        reply->answer = first->procedure;
        reply->head_at = first->copied;
        reply->head = first->head;
        pg_put_bytes(&reply->message, open.result.message + first->extensions,
                     first->total - first->extensions);
        exchange->owes = true;
        if (first->total >= 1 << 20) pg_exchange_settle(exchange);
    } else if (outcome == PG_TIMED_OUT) {
        send_plain(exchange, PG_QUIT);
        exchange->captured = true;
    } else {
        exchange->ended = true; /* bind again */
    }
    pg_sender_free(&open.sender);
    pg_assembly_free(&open.result);
    free(open.message);
    return outcome;
}

/* Acknowledges the last result. A client calls this within 100 ms if it makes no other call. */
void pg_exchange_settle(struct pg_exchange *exchange) {
    if (!exchange->owes) return;
    struct pg_packet have = packet_of(exchange, PG_HAVE_RESULT);
    have.flags = PG_ALL;
    pg_packet_send(exchange->fd, NULL, &have);
    exchange->owes = false;
}

void pg_exchange_close(struct pg_exchange *exchange) {
    if (!exchange->ended) send_plain(exchange, PG_BYE);
    close(exchange->fd);
    exchange->fd = -1;
}
