/* What the client and the server in C share. */

#include <stdio.h>

#include "every.h"

#define LITTLE_ENDIAN_HERE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* Calls `X(name, type)` for each type of the interface. */
#define EACH_TYPE(X)                                                                                   \
	X(int, int) X(unsigned, u_int) X(hyper, quad_t) X(uhyper, u_quad_t) X(char, char)              \
	X(uchar, u_char) X(short, short) X(ushort, u_short) X(long, long) X(bool, bool_t)              \
	X(float, float) X(double, double) X(quadruple, quadruple) X(colour, colour)                    \
	X(blob, blob) X(brief, brief) X(label, label) X(shorts, shorts) X(hypers, hypers)              \
	X(labels, labels) X(fixed, fixed) X(point, point) X(points, points) X(shape, shape)            \
	X(answer, answer) X(perhaps, perhaps) X(place, place) X(list, list) X(tree, tree)              \
	X(every, every)

#define DECLARE(name, type) void put_##name(FILE *to, type value);
EACH_TYPE(DECLARE)
#undef DECLARE
