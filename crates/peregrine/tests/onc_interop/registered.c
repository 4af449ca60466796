/* A server that registers its program at rpcbind by libtirpc, and commands that ask rpcbind. Each command prints
 * one line. */

#include <rpc/rpc.h>

#include <rpc/pmap_clnt.h>
#include <rpc/pmap_prot.h>
#include <rpc/pmap_rmt.h>
#include <rpc/rpcb_clnt.h>
#include <rpc/rpcb_prot.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define PROGRAM 0x20000079
#define VERSION 1

static const struct timeval patience = {10, 0};

static void fail(const char *what) {
	fprintf(stderr, "%s\n", what);
	exit(1);
}

/* Procedure 1 returns its argument plus one. */
static void dispatch(struct svc_req *request, SVCXPRT *transport) {
	int number = 0;
	switch (request->rq_proc) {
	case 0:
		svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
		return;
	case 1:
		if (!svc_getargs(transport, (xdrproc_t)xdr_int, (caddr_t)&number)) {
			svcerr_decode(transport);
			return;
		}
		number++;
		svc_sendreply(transport, (xdrproc_t)xdr_int, (caddr_t)&number);
		return;
	default:
		svcerr_noproc(transport);
	}
}

static void unregister(int signal) {
	(void)signal;
	svc_unreg(PROGRAM, VERSION);
	_exit(0);
}

static int serve(void) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGTERM, unregister);
	if (svc_create(dispatch, PROGRAM, VERSION, "udp") == 0 ||
	    svc_create(dispatch, PROGRAM, VERSION, "tcp") == 0)
		fail("cannot register");
	printf("ready\n");
	fflush(stdout);
	svc_run();
	return 1;
}

static CLIENT *connect_to(const char *host, rpcprog_t program, rpcvers_t version, const char *transport) {
	CLIENT *client = clnt_create(host, program, version, transport);
	if (client == NULL) {
		printf("%s\n", clnt_spcreateerror(host));
		exit(2);
	}
	return client;
}

/* Prints the result of a call to rpcbind, or why there is none. */
static int asked(CLIENT *client, enum clnt_stat status, const char *result) {
	printf("%s\n", status == RPC_SUCCESS ? result : clnt_sperrno(status));
	clnt_destroy(client);
	return 0;
}

static int change(const char *host, const char *transport, rpcproc_t procedure) {
	CLIENT *client = connect_to(host, RPCBPROG, RPCBVERS4, transport);
	struct rpcb entry = {PROGRAM, VERSION, "udp", procedure == RPCBPROC_SET ? "0.0.0.0.8.1" : "", "superuser"};
	bool_t changed = FALSE;
	enum clnt_stat status = clnt_call(client, procedure, (xdrproc_t)xdr_rpcb, (char *)&entry,
					  (xdrproc_t)xdr_bool, (char *)&changed, patience);
	return asked(client, status, changed ? "changed" : "unchanged");
}

static int dump(const char *host, const char *transport) {
	CLIENT *client = connect_to(host, RPCBPROG, RPCBVERS4, transport);
	rpcblist_ptr all = NULL;
	enum clnt_stat status = clnt_call(client, RPCBPROC_DUMP, (xdrproc_t)xdr_void, NULL,
					  (xdrproc_t)xdr_rpcblist_ptr, (char *)&all, patience);
	int count = 0;
	for (; all != NULL; all = all->rpcb_next)
		count += all->rpcb_map.r_prog == PROGRAM;
	char text[20];
	snprintf(text, sizeof text, "%d", count);
	return asked(client, status, text);
}

/* Asks rpcbind to call procedure 0 of rpcbind. */
static int indirect(const char *host, const char *transport, rpcproc_t procedure) {
	CLIENT *client = connect_to(host, RPCBPROG, RPCBVERS4, transport);
	struct r_rpcb_rmtcallargs call = {.prog = RPCBPROG, .vers = 4, .proc = 0, .xdr_args = (xdrproc_t)xdr_void};
	char results[400];
	enum clnt_stat status = clnt_call(client, procedure, (xdrproc_t)xdr_rpcb_rmtcallargs, (char *)&call,
					  (xdrproc_t)xdr_void, results, patience);
	return asked(client, status, "called");
}

static int call(const char *host, const char *transport) {
	CLIENT *client = connect_to(host, PROGRAM, VERSION, transport);
	int number = 20, result = 0;
	enum clnt_stat status = clnt_call(client, 1, (xdrproc_t)xdr_int, (char *)&number, (xdrproc_t)xdr_int,
					  (char *)&result, patience);
	return asked(client, status, result == 21 ? "21" : "another result");
}

static int find(const char *host, const char *network) {
	struct netconfig *of = getnetconfigent(network);
	char memory[128];
	struct netbuf address = {.maxlen = sizeof memory, .buf = memory};
	if (of == NULL || !rpcb_getaddr(PROGRAM, VERSION, of, &address, host)) {
		printf("%s\n", clnt_spcreateerror("rpcb_getaddr"));
		return 2;
	}
	printf("%s\n", taddr2uaddr(of, &address));
	return 0;
}

static int port(const char *protocol) {
	struct sockaddr_in host = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	printf("%d\n", pmap_getport(&host, PROGRAM, VERSION, atoi(protocol)));
	return 0;
}

static int set(const char *network, const char *address) {
	struct netconfig *of = getnetconfigent(network);
	struct netbuf *at = of == NULL ? NULL : uaddr2taddr(of, address);
	if (at == NULL)
		fail("an address");
	printf("%s\n", rpcb_set(PROGRAM, VERSION, of, at) ? "changed" : "unchanged");
	return 0;
}

int main(int count, char **words) {
	const char *what = count > 1 ? words[1] : "";
	if (strcmp(what, "serve") == 0)
		return serve();
	if (strcmp(what, "rpcb_unset") == 0) {
		printf("%s\n", rpcb_unset(PROGRAM, VERSION, NULL) ? "changed" : "unchanged");
		return 0;
	}
	if (strcmp(what, "pmap_unset") == 0) {
		printf("%s\n", pmap_unset(PROGRAM, VERSION) ? "changed" : "unchanged");
		return 0;
	}
	if (count == 3 && strcmp(what, "pmap_getport") == 0)
		return port(words[2]);
	if (count != 4)
		fail("usage");
	if (strcmp(what, "pmap_set") == 0) {
		bool_t changed = pmap_set(PROGRAM, VERSION, atoi(words[2]), atoi(words[3]));
		printf("%s\n", changed ? "changed" : "unchanged");
		return 0;
	}
	if (strcmp(what, "rpcb_set") == 0)
		return set(words[2], words[3]);
	if (strcmp(what, "rpcb_getaddr") == 0)
		return find(words[2], words[3]);
	if (strcmp(what, "call") == 0)
		return call(words[2], words[3]);
	if (strcmp(what, "set") == 0)
		return change(words[2], words[3], RPCBPROC_SET);
	if (strcmp(what, "unset") == 0)
		return change(words[2], words[3], RPCBPROC_UNSET);
	if (strcmp(what, "dump") == 0)
		return dump(words[2], words[3]);
	if (strcmp(what, "bcast") == 0)
		return indirect(words[2], words[3], RPCBPROC_BCAST);
	if (strcmp(what, "indirect") == 0)
		return indirect(words[2], words[3], RPCBPROC_INDIRECT);
	fail("usage");
}
