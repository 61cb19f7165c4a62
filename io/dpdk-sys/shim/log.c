/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the last errors of DPDK and warnings of libbpf and libxdp, so that a failure can be reported as
 * one sentence with its cause instead of a page of driver messages.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <rte_log.h>

#include "weir_dpdk.h"

#define LINES 16
#define LINE_BYTES 240

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES][LINE_BYTES];
static unsigned int first, count;
static int echo_lines;

static void keep_line(const char *text, size_t length)
{
	while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r'))
		length--;
	if (length == 0)
		return;
	if (length > LINE_BYTES - 1)
		length = LINE_BYTES - 1;
	pthread_mutex_lock(&lock);
	if (count == LINES) {
		first = (first + 1) % LINES;
		count--;
	}
	char *line = lines[(first + count++) % LINES];
	memcpy(line, text, length);
	line[length] = '\0';
	pthread_mutex_unlock(&lock);
}

static ssize_t write_log(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	if (echo_lines)
		fwrite(text, 1, length, stderr);
	if (rte_log_cur_msg_loglevel() <= (int)RTE_LOG_ERR)
		keep_line(text, length);
	return (ssize_t)length;
}

int weir_log_capture(int echo)
{
	static FILE *stream;
	const cookie_io_functions_t functions = { .write = write_log };

	echo_lines = echo;
	if (stream == NULL) {
		stream = fopencookie(NULL, "w", functions);
		if (stream == NULL)
			return -1;
		/* One write per message, so that its level is still the current one. */
		setvbuf(stream, NULL, _IOLBF, 0);
	}
	return rte_openlog_stream(stream);
}

static int print_xdp(int level, const char *format, va_list arguments)
{
	char text[LINE_BYTES];
	int length;

	/* libbpf and libxdp: 0 warning, 1 information, 2 debug. */
	if (level > 0)
		return 0;
	length = vsnprintf(text, sizeof(text), format, arguments);
	if (length <= 0)
		return 0;
	if (echo_lines)
		fwrite(text, 1, strlen(text), stderr);
	keep_line(text, strlen(text));
	return length;
}

static void set_printer(const char *library, const char *setter)
{
	typedef int (*printer)(int level, const char *format, va_list arguments);
	typedef printer (*set_printer_function)(printer function);
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

	if (handle == NULL)
		return;
	set_printer_function set = (set_printer_function)dlsym(handle, setter);
	if (set != NULL)
		set(print_xdp);
	dlclose(handle);
}

void weir_log_capture_xdp(void)
{
	set_printer("libbpf.so.1", "libbpf_set_print");
	set_printer("libxdp.so.1", "libxdp_set_print");
}

void weir_log_clear(void)
{
	pthread_mutex_lock(&lock);
	first = 0;
	count = 0;
	pthread_mutex_unlock(&lock);
}

size_t weir_log_read(char *buffer, size_t size)
{
	size_t used = 0;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < count; i++) {
		const char *line = lines[(first + i) % LINES];
		size_t length = strlen(line);

		if (used + length + 1 > size)
			break;
		memcpy(buffer + used, line, length);
		used += length;
		buffer[used++] = '\n';
	}
	pthread_mutex_unlock(&lock);
	return used;
}
