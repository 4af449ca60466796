/* Headers of messages and packets, checksums, and sending. All fields are little-endian. */
#include "peregrine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

uint16_t pg_le16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

uint32_t pg_le32(const uint8_t *at) { return pg_le16(at) | (uint32_t)pg_le16(at + 2) << 16; }

uint64_t pg_le64(const uint8_t *at) { return pg_le32(at) | (uint64_t)pg_le32(at + 4) << 32; }

void pg_set_le16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

void pg_set_le32(uint8_t *at, uint32_t value) {
    pg_set_le16(at, (uint16_t)value);
    pg_set_le16(at + 2, (uint16_t)(value >> 16));
}

void pg_set_le64(uint8_t *at, uint64_t value) {
    pg_set_le32(at, (uint32_t)value);
    pg_set_le32(at + 4, (uint32_t)(value >> 32));
}

/* CRC32C (Castagnoli), reflected; the initial value and the result are inverted. */
uint32_t pg_crc32c(const uint8_t *bytes, size_t count) {
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
            table[i] = c;
        }
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++) crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

static uint64_t turned(uint64_t v, int by) { return v << by | v >> (64 - by); }

static void sip_rounds(uint64_t v[4], int rounds) {
    while (rounds--) {
        v[0] += v[1], v[1] = turned(v[1], 13) ^ v[0], v[0] = turned(v[0], 32);
        v[2] += v[3], v[3] = turned(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = turned(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = turned(v[1], 17) ^ v[2], v[2] = turned(v[2], 32);
    }
}

/* SipHash-2-4 with a result of 128 bits. */
void pg_siphash(const uint8_t key[16], const uint8_t *bytes, size_t count, uint8_t out[16]) {
    uint64_t a = pg_le64(key), b = pg_le64(key + 8);
    uint64_t v[4] = {a ^ 0x736f6d6570736575u, b ^ 0x646f72616e646f6du ^ 0xee,
                     a ^ 0x6c7967656e657261u, b ^ 0x7465646279746573u};
    for (size_t at = 0; at <= count; at += 8) {
        uint8_t last[8] = {0};
        size_t left = count - at < 8 ? count - at : 8;
        memcpy(last, bytes + at, left);
        if (left < 8) last[7] = (uint8_t)count;
        uint64_t word = pg_le64(last);
        v[3] ^= word, sip_rounds(v, 2), v[0] ^= word;
    }
    v[2] ^= 0xee, sip_rounds(v, 4), pg_set_le64(out, v[0] ^ v[1] ^ v[2] ^ v[3]);
    v[1] ^= 0xdd, sip_rounds(v, 4), pg_set_le64(out + 8, v[0] ^ v[1] ^ v[2] ^ v[3]);
}

void pg_random(void *bytes, size_t count) {
    if (getrandom(bytes, count, 0) != (ssize_t)count) abort();
}

uint64_t pg_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void *pg_allocate(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) abort();
    return memory;
}

/* ---- messages of a stream ---- */

void pg_stream_pack(const struct pg_stream_header *header, uint8_t out[PG_STREAM_HEADER]) {
    pg_set_le32(out, header->body);
    out[4] = header->kind;
    out[5] = 1;
    memcpy(out + 6, "Pg", 2);
    pg_set_le32(out + 8, header->number);
    pg_set_le32(out + 12, header->binding);
    pg_set_le32(out + 16, header->procedure);
    pg_set_le32(out + 20, header->head);
    pg_set_le32(out + 24, header->copied);
    pg_set_le32(out + 28, header->extensions);
}

bool pg_stream_unpack(struct pg_stream_header *header, const uint8_t in[PG_STREAM_HEADER]) {
    *header = (struct pg_stream_header){
        .body = pg_le32(in), .kind = in[4], .version = in[5], .number = pg_le32(in + 8),
        .binding = pg_le32(in + 12), .procedure = pg_le32(in + 16), .head = pg_le32(in + 20),
        .copied = pg_le32(in + 24), .extensions = pg_le32(in + 28)};
    return memcmp(in + 6, "Pg", 2) == 0;
}

/* Returns the bytes after the header: body and extensions, each padded. */
size_t pg_stream_rest(const struct pg_stream_header *header) {
    return PG_ROUND16((size_t)header->body) + PG_ROUND16((size_t)header->extensions);
}

/* ---- packets ---- */

static size_t pack(uint8_t version, const struct pg_packet *packet, uint8_t out[PG_PACKET_MAX]) {
    memset(out, 0, PG_PACKET_HEADER);
    memcpy(out, "PX", 2);
    out[2] = version;
    out[3] = packet->kind;
    pg_set_le32(out + 8, packet->place);
    memcpy(out + 12, packet->secret, 12);
    pg_set_le32(out + 24, packet->sequence);
    pg_set_le16(out + 28, packet->flags);
    pg_set_le16(out + 30, packet->serial);
    pg_set_le32(out + 32, packet->procedure);
    if (packet->kind == PG_REFUSED) {
        pg_set_le64(out + 36, packet->table);
        pg_set_le32(out + 44, packet->copied);
    } else {
        pg_set_le32(out + 36, packet->total);
        pg_set_le32(out + 40, packet->head);
        pg_set_le32(out + 44, packet->copied);
        pg_set_le32(out + 48, packet->fragment);
    }
    pg_set_le16(out + 52, (uint16_t)(packet->piece / 16));
    pg_set_le16(out + 54, packet->credits);
    if (packet->flags & PG_CHECKED)
        pg_set_le32(out + 56, pg_crc32c(packet->body, packet->body_bytes));
    pg_set_le16(out + 60, packet->extensions);
    pg_set_le16(out + 62, packet->echo);
    pg_set_le32(out + 4, pg_crc32c(out, PG_PACKET_HEADER));
    if (packet->body_bytes) memcpy(out + PG_PACKET_HEADER, packet->body, packet->body_bytes);
    return PG_PACKET_HEADER + packet->body_bytes;
}

size_t pg_packet_pack(const struct pg_packet *packet, uint8_t out[PG_PACKET_MAX]) {
    return pack(PG_PACKET_VERSION, packet, out);
}

static bool piece_valid(uint32_t piece) { return piece >= 512 && piece <= 65440; }

/* Whether the fields are valid for the kind of the packet (the table of P 9). */
static bool possible(const struct pg_packet *p) {
    struct pg_shape shape;
    uint32_t at;
    bool checked = p->flags & PG_CHECKED;
    switch (p->kind) {
    case PG_CALL:
        if ((uint64_t)p->extensions + p->head > p->total || p->copied > p->total) return false;
        break;
    case PG_RESULT:
        if ((uint64_t)p->extensions + p->copied + p->head > p->total) return false;
        break;
    case PG_HAVE_CALL:
    case PG_HAVE_RESULT:
        return piece_valid(p->piece) && p->body_bytes <= 512 && checked == (p->body_bytes > 0);
    case PG_PROBE: return piece_valid(p->piece) && p->body_bytes == 0;
    case PG_QUIT:
    case PG_LET_GO:
    case PG_REFUSED:
    case PG_ASK:
    case PG_BYE: return p->body_bytes == 0;
    case PG_HELLO:
    case PG_COOKIE:
    case PG_BIND_PACKET:
    case PG_BOUND_PACKET:
    case PG_UNBOUND: return checked && p->body_bytes == PG_BINDING_BODY;
    default: return false;
    }
    return p->extensions % 16 == 0 && pg_shape_of(&shape, p->total, p->piece) &&
           p->fragment < shape.count &&
           p->body_bytes == pg_fragment_range(&shape, p->fragment, &at);
}

static bool unpack(struct pg_packet *packet, const uint8_t *in, size_t bytes) {
    if (bytes < PG_PACKET_HEADER || memcmp(in, "PX", 2) != 0) return false;
    uint8_t header[PG_PACKET_HEADER];
    memcpy(header, in, sizeof header);
    memset(header + 4, 0, 4);
    if (pg_crc32c(header, sizeof header) != pg_le32(in + 4)) return false;
    *packet = (struct pg_packet){
        .kind = in[3], .place = pg_le32(in + 8), .sequence = pg_le32(in + 24),
        .flags = pg_le16(in + 28), .serial = pg_le16(in + 30), .procedure = pg_le32(in + 32),
        .total = pg_le32(in + 36), .head = pg_le32(in + 40), .copied = pg_le32(in + 44),
        .fragment = pg_le32(in + 48), .piece = 16 * (uint32_t)pg_le16(in + 52),
        .credits = pg_le16(in + 54), .extensions = pg_le16(in + 60), .echo = pg_le16(in + 62),
        .table = pg_le64(in + 36), .body = in + PG_PACKET_HEADER,
        .body_bytes = bytes - PG_PACKET_HEADER};
    memcpy(packet->secret, in + 12, 12);
    if (packet->flags > 63 || !possible(packet)) return false;
    return !(packet->flags & PG_CHECKED) ||
           pg_crc32c(packet->body, packet->body_bytes) == pg_le32(in + 56);
}

bool pg_packet_unpack(struct pg_packet *packet, const uint8_t *in, size_t bytes) {
    return unpack(packet, in, bytes) && in[2] == PG_PACKET_VERSION;
}

uint8_t pg_packet_of_another(struct pg_packet *packet, const uint8_t *in, size_t bytes) {
    if (!unpack(packet, in, bytes) || in[2] == PG_PACKET_VERSION) return 0;
    return packet->kind >= PG_HELLO && packet->kind <= PG_UNBOUND ? in[2] : 0;
}

unsigned pg_lose;

void pg_packet_send_as(uint8_t version, int fd, const struct sockaddr_in *to,
                       const struct pg_packet *packet) {
    static uint8_t out[PG_PACKET_MAX];
    static uint32_t state = 1;
    size_t bytes = pack(version, packet, out);
    state = state * 1664525u + 1013904223u;
    if (pg_lose && (state >> 16) % pg_lose == 0) return;
    /* A failed send is treated as a lost packet. */
    (void)!sendto(fd, out, bytes, 0, (const struct sockaddr *)to, to ? sizeof *to : 0);
}

void pg_packet_send(int fd, const struct sockaddr_in *to, const struct pg_packet *packet) {
    pg_packet_send_as(PG_PACKET_VERSION, fd, to, packet);
}
