/*
 * The functions that the client and the server in C share. Each appends the text of a value, which is the
 * same as that of `show.rs`: numbers in decimal, bytes and floats in hexadecimal.
 */

#include "every_c.h"

#include <stdlib.h>
#include <string.h>

/* Reads and writes the 16 bytes of an IEEE 754 number. */
bool_t xdr_quadruple(XDR *xdrs, long double *value) {
	__float128 number = 0;
	char bytes[16];
	if (xdrs->x_op == XDR_FREE)
		return TRUE;
	if (xdrs->x_op == XDR_ENCODE) {
		number = *value;
		for (int i = 0; i < 16; i++)
			bytes[LITTLE_ENDIAN_HERE ? 15 - i : i] = ((char *)&number)[i];
	}
	if (!xdr_opaque(xdrs, bytes, sizeof bytes))
		return FALSE;
	if (xdrs->x_op == XDR_DECODE) {
		for (int i = 0; i < 16; i++)
			((char *)&number)[i] = bytes[LITTLE_ENDIAN_HERE ? 15 - i : i];
		*value = (long double)number;
	}
	return TRUE;
}

static void put_bytes(FILE *to, const void *bytes, size_t count) {
	fputc('<', to);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%02x", ((const unsigned char *)bytes)[i]);
	fputc('>', to);
}

void put_int(FILE *to, int value) { fprintf(to, "%d", value); }
void put_unsigned(FILE *to, u_int value) { fprintf(to, "%u", value); }
void put_hyper(FILE *to, quad_t value) { fprintf(to, "%lld", (long long)value); }
void put_uhyper(FILE *to, u_quad_t value) { fprintf(to, "%llu", (unsigned long long)value); }
void put_char(FILE *to, char value) { fprintf(to, "%d", (signed char)value); }
void put_uchar(FILE *to, u_char value) { fprintf(to, "%u", value); }
void put_short(FILE *to, short value) { fprintf(to, "%d", value); }
void put_ushort(FILE *to, u_short value) { fprintf(to, "%u", value); }
void put_bool(FILE *to, bool_t value) { fputs(value ? "true" : "false", to); }
void put_colour(FILE *to, colour value) { fprintf(to, "%d", (int)value); }
void put_label(FILE *to, label value) { put_bytes(to, value, strlen(value)); }

/* Where `long` has 64 bits, libtirpc reads a negative number of 32 bits as a positive one. */
void put_long(FILE *to, long value) { fprintf(to, "%d", (int)value); }

void put_float(FILE *to, float value) {
	u_int bits;
	memcpy(&bits, &value, sizeof bits);
	fprintf(to, "%08x", bits);
}

void put_double(FILE *to, double value) {
	unsigned long long bits;
	memcpy(&bits, &value, sizeof bits);
	fprintf(to, "%016llx", bits);
}

void put_quadruple(FILE *to, quadruple value) {
	__float128 number = value;
	fputc('<', to);
	for (int i = 0; i < 16; i++)
		fprintf(to, "%02x", ((unsigned char *)&number)[LITTLE_ENDIAN_HERE ? 15 - i : i]);
	fputc('>', to);
}

void put_blob(FILE *to, blob value) { put_bytes(to, value.blob_val, value.blob_len); }
void put_brief(FILE *to, brief value) { put_bytes(to, value.brief_val, value.brief_len); }

/* Appends the elements of an array. */
#define PUT_ALL(to, put, values, count)                                                                \
	do {                                                                                           \
		fputc('[', to);                                                                        \
		for (size_t i = 0; i < (count); i++) {                                                 \
			if (i > 0)                                                                     \
				fputc(' ', to);                                                        \
			put(to, (values)[i]);                                                          \
		}                                                                                      \
		fputc(']', to);                                                                        \
	} while (0)

void put_shorts(FILE *to, shorts value) { PUT_ALL(to, put_short, value.shorts_val, value.shorts_len); }
void put_hypers(FILE *to, hypers value) { PUT_ALL(to, put_hyper, value.hypers_val, value.hypers_len); }
void put_labels(FILE *to, labels value) { PUT_ALL(to, put_label, value.labels_val, value.labels_len); }
void put_points(FILE *to, points value) { PUT_ALL(to, put_point, value.points_val, value.points_len); }

void put_fixed(FILE *to, fixed value) {
	put_bytes(to, value.digest, sizeof value.digest);
	PUT_ALL(to, put_short, value.triple, 3);
	PUT_ALL(to, put_double, value.pair, 2);
	PUT_ALL(to, put_char, value.letters, 3);
}

void put_point(FILE *to, point value) {
	fprintf(to, "%d/%lld/%u", value.x, (long long)value.y, value.z);
}

void put_shape(FILE *to, shape value) {
	put_colour(to, value.kind);
	fputc(':', to);
	if (value.kind == RED)
		put_int(to, value.shape_u.red);
	else if (value.kind == GREEN || value.kind == BLUE)
		put_label(to, value.shape_u.name);
}

void put_answer(FILE *to, answer value) {
	put_int(to, value.which);
	fputc(':', to);
	if (value.which == -1)
		put_hyper(to, value.answer_u.far);
	else if (value.which != 0)
		put_bytes(to, value.answer_u.rest.rest_val, value.answer_u.rest.rest_len);
}

void put_perhaps(FILE *to, perhaps value) {
	put_bool(to, value.there);
	if (value.there)
		put_double(to, value.perhaps_u.value);
}

void put_place(FILE *to, place value) {
	if (value == NULL)
		fputc('-', to);
	else
		put_point(to, *value);
}

void put_list(FILE *to, list value) {
	for (; value != NULL; value = value->next)
		fprintf(to, "%d,", value->value);
	fputc('.', to);
}

void put_tree(FILE *to, tree value) {
	fputc('(', to);
	if (value.left != NULL)
		put_tree(to, *value.left);
	put_label(to, value.name);
	if (value.right != NULL)
		put_tree(to, *value.right);
	fputc(')', to);
}

void put_every(FILE *to, every value) {
	put_bool(to, value.yes);
	put_fixed(to, value.lengths);
	put_points(to, value.corners);
	put_shape(to, value.form);
	put_perhaps(to, value.real);
	put_place(to, value.where);
	put_labels(to, value.names);
	put_list(to, value.values);
}
