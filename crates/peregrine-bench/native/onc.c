/* Calls by ONC RPC: the server, or a client that reads orders from standard input.
 *
 *   onc server PROTOCOL ADDRESS               prints its port, and serves
 *   onc client PROTOCOL ADDRESS PORT BYTES    for each line "WARM CALLS", makes WARM calls, then CALLS
 *                                             calls, and prints the nanoseconds of the CALLS calls
 *
 * PROTOCOL is "udp" or "tcp". With BYTES 0, the calls are null calls. Otherwise the calls have that number of
 * bytes of arguments.
 */
#include <arpa/inet.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* USUAL: the library chooses the size of the buffers of a connection. With buffers of 64 KiB, the large calls
 * are not faster. */
enum { PROGRAM = 0x20000077, VERSION = 1, TAKE = 2, BYTES_MAX = 48000, USUAL = 0 };

struct bytes {
    char *start;
    unsigned count;
};

static bool_t xdr_argument(XDR *xdr, struct bytes *bytes) {
    return xdr_bytes(xdr, &bytes->start, &bytes->count, BYTES_MAX);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    struct bytes taken = {NULL, 0};
    switch (request->rq_proc) {
    case NULLPROC:
        svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
        break;
    case TAKE:
        if (svc_getargs(transport, (xdrproc_t)xdr_argument, (char *)&taken))
            svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
        else
            svcerr_decode(transport);
        svc_freeargs(transport, (xdrproc_t)xdr_argument, (char *)&taken);
        break;
    default:
        svcerr_noproc(transport);
    }
}

static int serve(int tcp, struct sockaddr_in address) {
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    address.sin_port = 0;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) ||
        getsockname(fd, (struct sockaddr *)&address, &length) || (tcp && listen(fd, 8)))
        return 1;
    SVCXPRT *transport = tcp ? svctcp_create(fd, USUAL, USUAL) : svcudp_create(fd);
    /* Protocol 0: the procedure is not registered with rpcbind. */
    if (!transport || !svc_register(transport, PROGRAM, VERSION, dispatch, 0))
        return 1;
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    svc_run();
    return 1;
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static int call(int tcp, struct sockaddr_in address, unsigned count) {
    struct timeval again = {1, 0}, limit = {5, 0};
    struct bytes bytes = {calloc(1, BYTES_MAX), count};
    int fd = RPC_ANYSOCK;
    CLIENT *client = tcp ? clnttcp_create(&address, PROGRAM, VERSION, &fd, USUAL, USUAL)
                         : clntudp_create(&address, PROGRAM, VERSION, again, &fd);
    unsigned warm, calls;
    if (!client || !bytes.start || count > BYTES_MAX)
        return 1;
    while (scanf("%u %u", &warm, &calls) == 2) {
        long long start = 0;
        for (unsigned n = 0; n < warm + calls; n++) {
            if (n == warm)
                start = now_ns();
            enum clnt_stat status =
                count ? clnt_call(client, TAKE, (xdrproc_t)xdr_argument, (char *)&bytes,
                                  (xdrproc_t)xdr_void, NULL, limit)
                      : clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL,
                                  (xdrproc_t)xdr_void, NULL, limit);
            if (status != RPC_SUCCESS)
                return 1;
        }
        printf("%lld\n", now_ns() - start);
        fflush(stdout);
    }
    return 0;
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (count < 4 || inet_pton(AF_INET, words[3], &address.sin_addr) != 1)
        return 2;
    int tcp = !strcmp(words[2], "tcp");
    if (!strcmp(words[1], "server"))
        return serve(tcp, address);
    if (count < 6)
        return 2;
    address.sin_port = htons(atoi(words[4]));
    return call(tcp, address, atoi(words[5]));
}
