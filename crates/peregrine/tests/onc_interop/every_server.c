/* The server in C. It prints its two ports, and serves until it is killed. */

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "every_c.h"

extern void types_prog_1(struct svc_req *request, SVCXPRT *transport);

#define DEFINE(name, type)                                                                             \
	bool_t echo_##name##_1_svc(type value, type *result, struct svc_req *request) {                \
		(void)request;                                                                         \
		*result = value;                                                                       \
		return TRUE;                                                                           \
	}                                                                                              \
	bool_t show_##name##_1_svc(type value, shown *result, struct svc_req *request) {               \
		size_t bytes;                                                                          \
		FILE *to = open_memstream(result, &bytes);                                             \
		(void)request;                                                                         \
		put_##name(to, value);                                                                 \
		fclose(to);                                                                            \
		return TRUE;                                                                           \
	}
EACH_TYPE(DEFINE)

bool_t nothing_1_svc(void *result, struct svc_req *request) {
	(void)result, (void)request;
	return TRUE;
}

bool_t show_two_1_svc(int number, label text, shown *result, struct svc_req *request) {
	size_t bytes;
	FILE *to = open_memstream(result, &bytes);
	(void)request;
	put_int(to, number);
	put_label(to, text);
	fclose(to);
	return TRUE;
}

bool_t fail_1_svc(void *result, struct svc_req *request) {
	(void)result;
	svcerr_systemerr(request->rq_xprt);
	return FALSE;
}

bool_t user_1_svc(u_int *result, struct svc_req *request) {
	*result = ~0u;
	if (request->rq_cred.oa_flavor == AUTH_SYS)
		*result = ((struct authunix_parms *)request->rq_clntcred)->aup_uid;
	return TRUE;
}

/* The results of `echo` share their memory with the arguments. So only the texts of `show` are released. */
int types_prog_1_freeresult(SVCXPRT *transport, xdrproc_t type, caddr_t result) {
	(void)transport;
	if (type == (xdrproc_t)xdr_shown)
		xdr_free(type, result);
	return TRUE;
}

static int bound_socket(int kind) {
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int it = socket(AF_INET, kind, 0);
	if (it < 0 || bind(it, (struct sockaddr *)&address, sizeof address) != 0 ||
	    (kind == SOCK_STREAM && listen(it, 16) != 0)) {
		perror("a socket");
		exit(1);
	}
	return it;
}

int main(void) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	SVCXPRT *udp = svcudp_create(bound_socket(SOCK_DGRAM));
	SVCXPRT *tcp = svctcp_create(bound_socket(SOCK_STREAM), 0, 0);
	/* With the protocol 0, the library does not register the program at rpcbind. */
	if (udp == NULL || tcp == NULL || !svc_register(udp, TYPES_PROG, TYPES_VERS, types_prog_1, 0) ||
	    !svc_register(tcp, TYPES_PROG, TYPES_VERS, types_prog_1, 0)) {
		fprintf(stderr, "cannot serve\n");
		return 1;
	}
	printf("udp %d\ntcp %d\n", udp->xp_port, tcp->xp_port);
	fflush(stdout);
	svc_run();
	return 1;
}
