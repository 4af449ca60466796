/* Null calls by ONC RPC over UDP: the server, or a client that reads orders from standard input.
 *
 *   onc server ADDRESS          prints its port, and serves
 *   onc client ADDRESS PORT     for each line "WARM CALLS", makes WARM calls, then CALLS calls, and
 *                               prints the nanoseconds of the CALLS calls
 */
#include <arpa/inet.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROGRAM = 0x20000077, VERSION = 1 };

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    if (request->rq_proc == NULLPROC)
        svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
    else
        svcerr_noproc(transport);
}

static int serve(struct sockaddr_in address) {
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_port = 0;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) ||
        getsockname(fd, (struct sockaddr *)&address, &length))
        return 1;
    SVCXPRT *transport = svcudp_create(fd);
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

static int call(struct sockaddr_in address) {
    struct timeval again = {1, 0}, limit = {5, 0};
    int fd = RPC_ANYSOCK;
    CLIENT *client = clntudp_create(&address, PROGRAM, VERSION, again, &fd);
    unsigned warm, calls;
    if (!client)
        return 1;
    while (scanf("%u %u", &warm, &calls) == 2) {
        long long start = 0;
        for (unsigned n = 0; n < warm + calls; n++) {
            if (n == warm)
                start = now_ns();
            enum clnt_stat status = clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL,
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
    if (count < 3 || inet_pton(AF_INET, words[2], &address.sin_addr) != 1)
        return 2;
    if (!strcmp(words[1], "server"))
        return serve(address);
    if (count < 4)
        return 2;
    address.sin_port = htons(atoi(words[3]));
    return call(address);
}
