/* Calls over TCP (docs/PROTOCOL.md, part 8): a client with one call at a time, and a server with
 * one thread, which runs each call as soon as its message is complete. */
#include "peregrine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool send_all(int fd, const uint8_t *bytes, size_t count) {
    while (count) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

/* Sends a message: the header, and the body padded to a multiple of 16. Each call also has an
 * extension of an unknown kind, because the receiver must ignore it. */
static bool send_message(int fd, struct pg_stream_header header, const uint8_t *body) {
    static const uint8_t unknown[16] = {0x01, 0x70, 0, 0, 5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'};
    header.extensions = header.kind == PG_CALL_MESSAGE ? 13 : 0;
    size_t rest = pg_stream_rest(&header);
    uint8_t *message = pg_allocate(PG_STREAM_HEADER + rest);
    pg_stream_pack(&header, message);
    if (header.body) memcpy(message + PG_STREAM_HEADER, body, header.body);
    if (header.extensions)
        memcpy(message + PG_STREAM_HEADER + rest - sizeof unknown, unknown, sizeof unknown);
    bool sent = send_all(fd, message, PG_STREAM_HEADER + rest);
    free(message);
    return sent;
}

static void prepare(int fd) {
    int one = 1;
    struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* ---- the client ---- */

bool pg_stream_connect(struct pg_stream *stream, uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *stream = (struct pg_stream){.next = 1, .fd = socket(AF_INET, SOCK_STREAM, 0)};
    if (stream->fd < 0 || connect(stream->fd, (struct sockaddr *)&to, sizeof to) != 0) return false;
    prepare(stream->fd);
    return true;
}

/* Returns 1 if all bytes arrived, 0 if none arrived in time, and -1 if the connection failed. */
static int receive(int fd, uint8_t *bytes, size_t count, uint64_t until_us) {
    size_t have = 0;
    while (have < count) {
        uint64_t now = pg_now_us();
        struct pollfd one = {.fd = fd, .events = POLLIN};
        /* After the first byte, each further part has 10 s to arrive. */
        int wait = have ? 10000 : until_us <= now ? 0 : (int)((until_us - now) / 1000 + 1);
        int ready = poll(&one, 1, wait);
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) return have ? -1 : 0;
        ssize_t got = recv(fd, bytes + have, count - have, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        have += (size_t)got;
    }
    return 1;
}

/* Receives the next message; returns the same values as `receive`. */
static int next_message(struct pg_stream *stream, uint64_t until_us) {
    uint8_t bytes[PG_STREAM_HEADER];
    int got = receive(stream->fd, bytes, sizeof bytes, until_us);
    if (got <= 0) return got;
    if (!pg_stream_unpack(&stream->header, bytes) || stream->header.version != 1) return -1;
    size_t rest = pg_stream_rest(&stream->header);
    if (rest > PG_MESSAGE_MAX) return -1;
    free(stream->body);
    stream->body = pg_allocate(rest);
    return rest == 0 ? 1 : receive(stream->fd, stream->body, rest, pg_now_us() + 10000000);
}

static bool ask(struct pg_stream *stream, uint8_t kind, const uint8_t *body, size_t bytes,
                uint8_t answer) {
    struct pg_stream_header header = {.kind = kind, .number = stream->next++,
                                      .body = (uint32_t)bytes};
    if (!send_message(stream->fd, header, body)) return false;
    return next_message(stream, pg_now_us() + 10000000) == 1 && stream->header.kind == answer &&
           stream->header.number == header.number;
}

/* Requests a description, which is then in `body`. */
bool pg_stream_describe(struct pg_stream *stream, const char *name) {
    return ask(stream, PG_DESCRIPTION_WANTED, (const uint8_t *)name, strlen(name), PG_DESCRIPTION);
}

bool pg_stream_bind(struct pg_stream *stream, const char *name, const uint8_t digest[16]) {
    uint8_t body[44 + PG_NAME_MAX] = {0};
    size_t bytes = strlen(name);
    if (bytes > PG_NAME_MAX) return false;
    memcpy(body, digest, 16);
    pg_set_le32(body + 16, 1);
    pg_set_le32(body + 20, PG_HOST_BIG ? 2 : 1);
    pg_set_le64(body + 24, PG_MESSAGE_WANTED);
    pg_set_le32(body + 32, 1 + 16);
    pg_set_le32(body + 36, (uint32_t)getpid());
    pg_set_le32(body + 40, (uint32_t)bytes);
    memcpy(body + 44, name, bytes);
    if (!ask(stream, PG_BIND, body, 44 + bytes, PG_BOUND) || stream->header.body < 28) return false;
    stream->binding = pg_le32(stream->body + 8);
    stream->big = pg_le32(stream->body + 12) == 2;
    stream->largest = pg_le64(stream->body + 16);
    return true;
}

static bool forget_abandoned(struct pg_stream *stream, uint32_t number) {
    for (size_t i = 0; i < stream->abandoned_count; i++)
        if (stream->abandoned[i] == number) {
            stream->abandoned[i] = stream->abandoned[--stream->abandoned_count];
            return true;
        }
    return false;
}

/* Handles a message that is not the awaited reply; returns false if the connection must end. */
static bool other_message(struct pg_stream *stream) {
    const struct pg_stream_header *header = &stream->header;
    switch (header->kind) {
    case PG_REPLY_MESSAGE: return forget_abandoned(stream, header->number);
    case PG_REVOKED:
        stream->revoked |= header->binding == stream->binding;
        return true;
    case PG_GOODBYE: stream->goodbye = true; return false;
    default: return false;
    }
}

enum pg_outcome pg_stream_call(struct pg_stream *stream, const struct pg_call *call,
                               struct pg_reply *reply, unsigned deadline_ms) {
    *reply = (struct pg_reply){0};
    bool full = stream->abandoned_count == sizeof stream->abandoned / sizeof *stream->abandoned;
    if (stream->ended || stream->revoked || full || call->message.count > stream->largest)
        return PG_FAILED_NOT_EXECUTED;
    struct pg_stream_header header = {
        .kind = PG_CALL_MESSAGE, .number = stream->next, .binding = stream->binding,
        .procedure = call->procedure, .body = (uint32_t)call->message.count,
        .head = (uint32_t)call->head, .copied = (uint32_t)call->copied};
    stream->next = stream->next + 1 ? stream->next + 1 : 1;
    uint64_t until = pg_now_us() + 1000 * (uint64_t)deadline_ms;
    int got = send_message(stream->fd, header, call->message.bytes) ? 1 : -1;
    while (got > 0) {
        got = next_message(stream, until);
        if (got <= 0) break;
        const struct pg_stream_header *it = &stream->header;
        if (it->kind == PG_REPLY_MESSAGE && it->number == header.number) {
            reply->answer = it->procedure;
            reply->head_at = it->copied;
            reply->head = it->head;
            pg_put_bytes(&reply->message, stream->body, it->body);
            return PG_REPLIED;
        }
        if (!other_message(stream)) got = -1;
    }
    if (got == 0) {
        struct pg_stream_header abandon = {.kind = PG_ABANDON, .number = header.number,
                                           .binding = stream->binding};
        if (send_message(stream->fd, abandon, NULL)) {
            stream->abandoned[stream->abandoned_count++] = header.number;
            return PG_TIMED_OUT;
        }
    }
    stream->ended = true;
    return stream->goodbye ? PG_FAILED_NOT_EXECUTED : PG_FAILED_MAYBE;
}

void pg_stream_close(struct pg_stream *stream) {
    struct pg_stream_header unbind = {.kind = PG_UNBIND, .binding = stream->binding};
    if (stream->binding) send_message(stream->fd, unbind, NULL);
    close(stream->fd);
    free(stream->body);
    *stream = (struct pg_stream){.fd = -1};
}

/* ---- the server ---- */

#define CONNECTIONS_MAX 64
#define BINDINGS_MAX 64

struct connection {
    int fd; /* -1 if the entry is free */
    uint8_t *bytes;
    size_t have, room, skip; /* `skip`: bytes left to discard of a message that is too large */
    bool bound[BINDINGS_MAX];
};

struct pg_stream_server {
    const struct pg_export *of;
    int fd;
    uint64_t epoch, since_us;
    struct connection connections[CONNECTIONS_MAX];
};

struct pg_stream_server *pg_stream_listen(const struct pg_export *of, uint16_t *port) {
    struct pg_stream_server *server = pg_allocate(sizeof *server);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    server->of = of;
    server->since_us = pg_now_us();
    pg_random(&server->epoch, sizeof server->epoch);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) server->connections[i].fd = -1;
    server->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (server->fd < 0 || bind(server->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(server->fd, 64) != 0 ||
        getsockname(server->fd, (struct sockaddr *)&at, &bytes) != 0) {
        free(server);
        return NULL;
    }
    *port = ntohs(at.sin_port);
    return server;
}

size_t pg_stream_fds(struct pg_stream_server *server, struct pollfd *fds, size_t room) {
    size_t count = 0;
    if (room > 0) fds[count++] = (struct pollfd){.fd = server->fd, .events = POLLIN};
    for (size_t i = 0; i < CONNECTIONS_MAX && count < room; i++)
        if (server->connections[i].fd >= 0)
            fds[count++] = (struct pollfd){.fd = server->connections[i].fd, .events = POLLIN};
    return count;
}

static void cut_off(struct connection *one) {
    close(one->fd);
    free(one->bytes);
    *one = (struct connection){.fd = -1};
}

static bool refuse(struct connection *to, uint32_t number, uint32_t kind, const char *why) {
    struct pg_reply refusal;
    pg_refuse(&refusal, 0, kind, why); /* the body has a kind and a text, as in a reply */
    struct pg_stream_header header = {.kind = PG_REFUSAL, .number = number,
                                      .body = (uint32_t)refusal.message.count};
    bool sent = send_message(to->fd, header, refusal.message.bytes);
    pg_reply_free(&refusal);
    return sent;
}

static bool answer(struct connection *to, uint32_t number, struct pg_reply *reply) {
    struct pg_stream_header header = {
        .kind = PG_REPLY_MESSAGE, .number = number, .body = (uint32_t)reply->message.count,
        .procedure = reply->answer, .head = (uint32_t)reply->head,
        .copied = (uint32_t)reply->head_at};
    bool sent = send_message(to->fd, header, reply->message.bytes);
    pg_reply_free(reply);
    return sent;
}

static uint32_t bindings(const struct pg_stream_server *server) {
    uint32_t count = 0;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        for (size_t k = 0; k < BINDINGS_MAX; k++) count += server->connections[i].bound[k];
    return count;
}

static bool bind_asked(struct pg_stream_server *server, struct connection *from,
                       const struct pg_stream_header *header, const uint8_t *body) {
    const struct pg_export *of = server->of;
    size_t name = header->body < 44 ? SIZE_MAX : pg_le32(body + 40);
    if (name != header->body - 44) return false;
    if (name != strlen(of->name) || memcmp(body + 44, of->name, name) != 0)
        return refuse(from, header->number, PG_NOT_FOUND, "no export has this name");
    if (pg_le32(body + 16) && memcmp(body, of->digest, 16) != 0)
        return refuse(from, header->number, PG_INTERFACE_MISMATCH, "the interfaces differ");
    uint64_t wanted = pg_le64(body + 24);
    if (wanted > PG_MESSAGE_MAX)
        return refuse(from, header->number, PG_TOO_LARGE, "the message is too large");
    uint32_t free = 0;
    while (free < BINDINGS_MAX && from->bound[free]) free++;
    if (free == BINDINGS_MAX)
        return refuse(from, header->number, PG_EXHAUSTED, "too many bindings");
    from->bound[free] = true;
    uint8_t bound[28];
    uint32_t calls = pg_le32(body + 32);
    pg_set_le64(bound, server->epoch);
    pg_set_le32(bound + 8, free);
    pg_set_le32(bound + 12, PG_HOST_BIG ? 2 : 1);
    pg_set_le64(bound + 16, wanted);
    pg_set_le32(bound + 24, calls == 0 ? 1 : calls < 64 ? calls : 64);
    struct pg_stream_header answer = {.kind = PG_BOUND, .number = header->number,
                                      .body = sizeof bound};
    return send_message(from->fd, answer, bound);
}

static bool described(struct pg_stream_server *server, struct connection *to,
                      const struct pg_stream_header *header, const uint8_t *body) {
    const struct pg_export *of = server->of;
    if (header->body != strlen(of->name) || memcmp(body, of->name, header->body) != 0)
        return refuse(to, header->number, PG_NOT_FOUND, "no export has this name");
    struct pg_writer text = {0};
    pg_describe(of, (pg_now_us() - server->since_us) / 1000, bindings(server), &text);
    struct pg_stream_header answer = {.kind = PG_DESCRIPTION, .number = header->number,
                                      .body = (uint32_t)text.count};
    bool sent = send_message(to->fd, answer, text.bytes);
    pg_writer_free(&text);
    return sent;
}

static bool has_bound(const struct connection *one, uint32_t binding) {
    return binding < BINDINGS_MAX && one->bound[binding];
}

/* Handles one complete message; returns false if the connection must end. */
static bool message(struct pg_stream_server *server, struct connection *from,
                    const struct pg_stream_header *header, const uint8_t *body) {
    struct pg_reply reply;
    switch (header->kind) {
    case PG_BIND: return bind_asked(server, from, header, body);
    case PG_DESCRIPTION_WANTED: return described(server, from, header, body);
    case PG_UNBIND:
        if (has_bound(from, header->binding)) from->bound[header->binding] = false;
        return true;
    case PG_ABANDON: return true; /* the call was answered before this message was read */
    case PG_CALL_MESSAGE:
        if (!has_bound(from, header->binding))
            pg_refuse(&reply, PG_NOT_EXECUTED, PG_WITHDRAWN, "no such binding");
        else
            pg_serve(server->of, header->procedure, body, header->head, header->copied,
                     header->body, &reply);
        return answer(from, header->number, &reply);
    default: return false;
    }
}

/* Handles all complete messages; returns false if the connection must end. */
static bool messages(struct pg_stream_server *server, struct connection *from) {
    size_t at = 0;
    bool goes_on = true;
    while (goes_on) {
        size_t left = from->have - at;
        size_t thrown = left < from->skip ? left : from->skip;
        at += thrown, left -= thrown, from->skip -= thrown;
        struct pg_stream_header header;
        if (left < PG_STREAM_HEADER) break;
        if (!pg_stream_unpack(&header, from->bytes + at)) return false;
        if (header.version != 1) {
            refuse(from, 0, PG_PROTOCOL_MISMATCH, "the server speaks version 1");
            return false;
        }
        size_t whole = PG_STREAM_HEADER + pg_stream_rest(&header);
        if (whole > PG_MESSAGE_MAX + PG_STREAM_HEADER) {
            if (header.kind != PG_CALL_MESSAGE) return false;
            struct pg_reply reply;
            pg_refuse(&reply, PG_NOT_EXECUTED, PG_TOO_LARGE, "the message is too large");
            goes_on = answer(from, header.number, &reply);
            from->skip = whole;
            continue;
        }
        if (left < whole) break;
        /* Copies the body to aligned memory, for procedures that access values in place. */
        uint8_t *body = pg_allocate(whole);
        memcpy(body, from->bytes + at + PG_STREAM_HEADER, whole - PG_STREAM_HEADER);
        goes_on = message(server, from, &header, body);
        free(body);
        at += whole;
    }
    memmove(from->bytes, from->bytes + at, from->have - at);
    from->have -= at;
    return goes_on;
}

static bool readable(struct pg_stream_server *server, struct connection *from) {
    /* Memory grows with the received bytes, and not with the announced length. */
    if (from->room - from->have < 65536) {
        from->room = 2 * from->have + 65536;
        from->bytes = realloc(from->bytes, from->room);
        if (!from->bytes) abort();
    }
    ssize_t got = recv(from->fd, from->bytes + from->have, from->room - from->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    from->have += (size_t)got;
    return messages(server, from);
}

void pg_stream_ready(struct pg_stream_server *server, const struct pollfd *fds, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!fds[i].revents) continue;
        if (fds[i].fd == server->fd) {
            int fd = accept(server->fd, NULL, NULL);
            struct connection *place = server->connections;
            while (place < server->connections + CONNECTIONS_MAX && place->fd >= 0) place++;
            if (fd < 0) continue;
            if (place == server->connections + CONNECTIONS_MAX) {
                struct connection guest = {.fd = fd};
                refuse(&guest, 0, PG_EXHAUSTED, "too many connections");
                close(fd);
                continue;
            }
            prepare(fd);
            *place = (struct connection){.fd = fd};
        }
        for (size_t k = 0; k < CONNECTIONS_MAX; k++) {
            struct connection *one = &server->connections[k];
            if (one->fd == fds[i].fd && !readable(server, one)) cut_off(one);
        }
    }
}

/* Ends all connections. GOODBYE states that unanswered calls were not executed and never will be. */
void pg_stream_goodbye(struct pg_stream_server *server) {
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *one = &server->connections[i];
        if (one->fd < 0) continue;
        send_message(one->fd, (struct pg_stream_header){.kind = PG_GOODBYE}, NULL);
        cut_off(one);
    }
    close(server->fd);
    free(server);
}
