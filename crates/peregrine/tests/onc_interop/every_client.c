/*
 * The client in C. It calls each procedure of the server at 127.0.0.1 with values at the limits of their
 * types, and checks the results. Its arguments are `udp` or `tcp`, and the port.
 */

#include <arpa/inet.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "every_c.h"

static CLIENT *client;

static void fail(const char *what, const char *why) {
	printf("failed: %s: %s\n", what, why);
	exit(1);
}

static CLIENT *connect_to(const char *transport, int port, u_int program, u_int version) {
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int it = RPC_ANYSOCK;
	address.sin_port = htons(port);
	CLIENT *made;
	if (strcmp(transport, "udp") == 0)
		made = clntudp_create(&address, program, version, (struct timeval){5, 0}, &it);
	else
		made = clnttcp_create(&address, program, version, &it, 0, 0);
	if (made == NULL)
		fail("connect", clnt_spcreateerror(""));
	return made;
}

static void check_text(const char *what, const char *found, const char *expected) {
	if (strcmp(found, expected) != 0) {
		printf("expected %.300s\nfound    %.300s\n", expected, found);
		fail(what, "the text differs");
	}
}

/* Defines a function for each type that sends a value and checks the text of what arrives there and here. */
#define DEFINE(name, type)                                                                             \
	static char *text_of_##name(type value) {                                                      \
		char *text;                                                                            \
		size_t bytes;                                                                          \
		FILE *to = open_memstream(&text, &bytes);                                              \
		put_##name(to, value);                                                                 \
		fclose(to);                                                                            \
		return text;                                                                           \
	}                                                                                              \
	static void try_##name(type value) {                                                           \
		char *mine = text_of_##name(value), *theirs, *text = NULL;                             \
		type back;                                                                             \
		memset(&back, 0, sizeof back);                                                         \
		enum clnt_stat status = show_##name##_1(value, &text, client);                         \
		if (status != RPC_SUCCESS)                                                             \
			fail("show " #name, clnt_sperrno(status));                                     \
		check_text("show " #name, text, mine);                                                 \
		status = echo_##name##_1(value, &back, client);                                        \
		if (status != RPC_SUCCESS)                                                             \
			fail("echo " #name, clnt_sperrno(status));                                     \
		check_text("echo " #name, theirs = text_of_##name(back), mine);                        \
		free(mine), free(theirs), free(text);                                                  \
	}
EACH_TYPE(DEFINE)

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Tries several values of a type. */
#define TRY(name, type, ...)                                                                           \
	do {                                                                                           \
		type values[] = {__VA_ARGS__};                                                         \
		for (size_t i = 0; i < COUNT(values); i++)                                             \
			try_##name(values[i]);                                                         \
		printf("%s %zu\n", #name, COUNT(values));                                              \
	} while (0)

static float float_of(u_int bits) {
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static double double_of(unsigned long long bits) {
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static void try_numbers(void) {
	TRY(int, int, INT_MIN, -1, 0, 1, INT_MAX);
	TRY(unsigned, u_int, 0, 1, INT_MAX, UINT_MAX);
	TRY(hyper, quad_t, LLONG_MIN, INT_MIN, -1, 0, UINT_MAX, LLONG_MAX);
	TRY(uhyper, u_quad_t, 0, UINT_MAX, ULLONG_MAX);
	TRY(char, char, SCHAR_MIN, -1, 0, SCHAR_MAX);
	TRY(uchar, u_char, 0, 1, 128, UCHAR_MAX);
	TRY(short, short, SHRT_MIN, -1, 0, SHRT_MAX);
	TRY(ushort, u_short, 0, 1, 32768, USHRT_MAX);
	TRY(long, long, INT_MIN, -1, 0, INT_MAX);
	TRY(bool, bool_t, FALSE, TRUE);
	TRY(float, float, 0.0f, -0.0f, 1.5f, FLT_MIN, FLT_MAX, -FLT_MAX, FLT_TRUE_MIN, INFINITY, -INFINITY,
	    float_of(0x7fc12345));
	TRY(double, double, 0.0, -0.0, 1.5, DBL_MIN, DBL_MAX, -DBL_MAX, DBL_TRUE_MIN, INFINITY, -INFINITY,
	    double_of(0x7ff8000012345678));
	TRY(quadruple, quadruple, 0.0L, -0.0L, 1.5L, LDBL_MIN, LDBL_MAX, -LDBL_MAX, INFINITY, -INFINITY);
	TRY(colour, colour, BLACK, RED, GREEN, BLUE);
}

static void try_bytes_and_arrays(size_t large) {
	char *bytes = malloc(large);
	for (size_t i = 0; i < large; i++)
		bytes[i] = (char)(i * 7 + i / 256);
	TRY(blob, blob, {0, NULL}, {1, bytes}, {2, bytes}, {3, bytes}, {4, bytes}, {255, bytes},
	    {large, bytes});
	TRY(brief, brief, {0, NULL}, {1, bytes}, {4, bytes}, {5, bytes});
	TRY(label, label, "", "a", "abcd", "0123456789", "\x01\x7f\xc3\xa9\xff");
	short few[] = {SHRT_MIN, 0, SHRT_MAX};
	TRY(shorts, shorts, {0, NULL}, {1, few}, {3, few});
	quad_t far[] = {LLONG_MIN, 0, LLONG_MAX};
	TRY(hypers, hypers, {0, NULL}, {3, far});
	label texts[] = {"", "x", "0123456789"};
	TRY(labels, labels, {0, NULL}, {3, texts});
	fixed zeros = {.digest = {0}};
	fixed full = {{1, 2, 3, 4, (char)255}, {SHRT_MIN, -1, SHRT_MAX}, {DBL_MAX, -0.0}, {SCHAR_MIN, 0, SCHAR_MAX}};
	TRY(fixed, fixed, zeros, full);
	point corners[] = {{INT_MIN, LLONG_MIN, 0}, {INT_MAX, LLONG_MAX, UCHAR_MAX}};
	TRY(points, points, {0, NULL}, {1, corners}, {2, corners});
	TRY(point, point, corners[0], corners[1]);
	free(bytes);
}

static void try_compounds(void) {
	shape red = {.kind = RED, .shape_u.red = INT_MIN}, green = {.kind = GREEN, .shape_u.name = ""};
	shape blue = {.kind = BLUE, .shape_u.name = "0123456789"}, black = {.kind = BLACK};
	TRY(shape, shape, red, green, blue, black);
	answer none = {.which = 0}, far = {.which = -1, .answer_u.far = LLONG_MIN};
	answer least = {.which = INT_MIN}, most = {.which = INT_MAX, .answer_u.rest = {3, "abc"}};
	TRY(answer, answer, none, far, least, most);
	perhaps no = {.there = FALSE}, yes = {.there = TRUE, .perhaps_u.value = DBL_TRUE_MIN};
	TRY(perhaps, perhaps, no, yes);
	point corner = {INT_MIN, LLONG_MAX, UCHAR_MAX};
	TRY(place, place, NULL, &corner);
	node nodes[200];
	for (int i = 0; i < 200; i++)
		nodes[i] = (node){INT_MIN + i, i < 199 ? &nodes[i + 1] : NULL};
	TRY(list, list, NULL, &nodes[199], &nodes[0]);
	tree leaf = {NULL, "leaf", NULL}, branch = {&leaf, "", NULL}, root = {&branch, "root", &leaf};
	TRY(tree, tree, leaf, root);
	label names[] = {"a", "bc"};
	every all = {TRUE, {.triple = {1, 2, 3}}, {1, &corner}, blue, yes, &corner, {2, names}, &nodes[197]};
	every least_of_all = {.form = black};
	TRY(every, every, least_of_all, all);
}

static void expect(const char *what, enum clnt_stat status, enum clnt_stat expected) {
	if (status != expected)
		fail(what, clnt_sperrno(status));
	printf("%s\n", what);
}

/* Calls a procedure that the interface does not have, with a sequence as its argument. */
static enum clnt_stat call(CLIENT *to, u_int procedure, blob *argument) {
	struct timeval limit = {10, 0};
	return clnt_call(to, procedure, (xdrproc_t)xdr_blob, (char *)argument, (xdrproc_t)xdr_void, NULL, limit);
}

static void try_the_rest(const char *transport, int port) {
	struct timeval limit = {10, 0};
	struct rpc_err error;
	u_int user = 0;
	shown text = NULL;
	blob three = {3, "abc"}, six = {6, "abcdef"};
	expect("null", clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit),
	       RPC_SUCCESS);
	expect("void", nothing_1(NULL, client), RPC_SUCCESS);
	expect("two arguments", show_two_1(INT_MIN, "0123456789", &text, client), RPC_SUCCESS);
	check_text("show two", text, "-2147483648<30313233343536373839>");
	expect("without credentials", user_1(&user, client), RPC_SUCCESS);
	if (user != ~0u)
		fail("user", "the server knows a user");
	auth_destroy(client->cl_auth);
	client->cl_auth = authunix_create("a-machine", 1234, 56, 2, (gid_t[]){56, 78});
	expect("credentials of AUTH_SYS", user_1(&user, client), RPC_SUCCESS);
	if (user != 1234)
		fail("user", "the server knows another user");
	expect("failure in the server", fail_1(NULL, client), RPC_SYSTEMERROR);
	expect("no such procedure", call(client, 1000, &three), RPC_PROCUNAVAIL);
	expect("argument beyond its limit", call(client, ECHO_BRIEF, &six), RPC_CANTDECODEARGS);
	CLIENT *other = connect_to(transport, port, TYPES_PROG, TYPES_VERS + 7);
	expect("no such version", call(other, ECHO_BLOB, &three), RPC_PROGVERSMISMATCH);
	clnt_geterr(other, &error);
	if (error.re_vers.low != TYPES_VERS || error.re_vers.high != TYPES_VERS)
		fail("no such version", "the server names other versions");
	clnt_destroy(other);
	other = connect_to(transport, port, TYPES_PROG + 1, TYPES_VERS);
	expect("no such program", call(other, ECHO_BLOB, &three), RPC_PROGUNAVAIL);
	clnt_destroy(other);
}

int main(int count, char **words) {
	if (count != 3)
		fail("usage", "udp|tcp PORT");
	int port = atoi(words[2]);
	client = connect_to(words[1], port, TYPES_PROG, TYPES_VERS);
	try_numbers();
	/* Datagrams of this library have at most 8,800 bytes, and `show` needs two for each. */
	try_bytes_and_arrays(strcmp(words[1], "udp") == 0 ? 4000 : 1000000);
	try_compounds();
	try_the_rest(words[1], port);
	clnt_destroy(client);
	printf("all is well\n");
	return 0;
}
