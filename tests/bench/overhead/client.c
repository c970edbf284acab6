/* A client that costs next to nothing: one thread, epoll, one request made once and sent again and again.

   usage: client PORT [-c connections] [-n requests] [-d seconds] [-b file with the body] [-H "name: value"]... [-s] [-o]

   -s  answers are streams: each must end in [DONE]; counts events with a time stamp ("@T" and 19 digits of the monotonic clock)
   -o  open one stream per connection and hold them all until the time is over
   Each connection sends its next request when the answer to the last one is complete, until the number or the time is
   reached; then what runs may finish for 30 s. Prints one line of JSON; times in microseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct Times {
    float *values;
    size_t count, room;
} Times;

enum Part { HEAD, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER };

typedef struct Line {
    int fd;
    bool connected, busy, keep, stamped;
    enum Part part;
    char head[16384], size_digits[32], tail[64];
    size_t head_size, digits, tail_size;
    long left;
    int status;
    uint64_t began;
    int stamp_digits; /* -2: looking for '@'; -1: seen it; else digits of the stamp read so far */
    uint64_t stamp;
    long events;
} Line;

static Times latency, first, delay;
static long good, bad, unfinished, reconnected, events, issued, running;
static bool streams;
static int poller, port;
static char *request;
static size_t request_size;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note(Times *times, uint64_t from, uint64_t to) {
    if (times->count == times->room) times->values = realloc(times->values, (times->room = 2 * times->room + 4096) * sizeof(float));
    times->values[times->count++] = (float)((double)((int64_t)(to - from)) / 1000.0);
}

static void hang_up(Line *line) {
    if (line->connected) close(line->fd);
    line->connected = false;
}

static void dial(Line *line) {
    int one = 1;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    line->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(line->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(line->fd, (struct sockaddr *)&place, sizeof place)) {
        perror("connect");
        exit(2);
    }
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = line};
    epoll_ctl(poller, EPOLL_CTL_ADD, line->fd, &wanted);
    line->connected = true;
}

static void ask(Line *line) {
    if (!line->connected) dial(line);
    line->busy = true;
    line->part = HEAD;
    line->head_size = line->digits = line->tail_size = 0;
    line->stamp_digits = -2;
    line->stamped = false;
    line->events = 0;
    line->status = 0;
    line->began = now();
    issued++;
    running++;
    for (size_t sent = 0; sent < request_size;) {
        ssize_t taken = send(line->fd, request + sent, request_size - sent, MSG_NOSIGNAL);
        if (taken <= 0) break;
        sent += (size_t)taken;
    }
}

static void over(Line *line, bool complete) {
    line->busy = false;
    running--;
    if (complete && line->status == 200) {
        good++;
        note(&latency, line->began, now());
        if (streams && !memmem(line->tail, line->tail_size, "[DONE]", 6)) unfinished++;
    } else {
        bad++;
    }
    if (!complete || !line->keep) {
        hang_up(line);
        reconnected++;
    }
}

/* Finds the time stamps, wherever the pieces are cut, and keeps the last bytes. */
static void read_body(Line *line, const char *data, size_t size, uint64_t at) {
    if (!streams) return;
    const char *end = data + size;
    for (const char *next = data; next < end;) {
        if (line->stamp_digits == -2) {
            next = memchr(next, '@', (size_t)(end - next));
            if (!next) break;
            next++;
            line->stamp_digits = -1;
        } else if (line->stamp_digits == -1) {
            line->stamp_digits = *next == 'T' ? 0 : -2;
            line->stamp = 0;
            next++;
        } else {
            line->stamp = line->stamp * 10 + (uint64_t)(*next++ - '0');
            if (++line->stamp_digits < 19) continue;
            line->stamp_digits = -2;
            events++;
            line->events++;
            note(&delay, line->stamp, at);
            if (!line->stamped) note(&first, line->began, at);
            line->stamped = true;
        }
    }
    if (size >= sizeof line->tail) {
        memcpy(line->tail, end - sizeof line->tail, line->tail_size = sizeof line->tail);
    } else {
        size_t keep = line->tail_size + size > sizeof line->tail ? sizeof line->tail - size : line->tail_size;
        memmove(line->tail, line->tail + line->tail_size - keep, keep);
        memcpy(line->tail + keep, data, size);
        line->tail_size = keep + size;
    }
}

/* Reads the head; the bytes of `data` that belong to it. */
static size_t read_head(Line *line, const char *data, size_t size) {
    size_t before = line->head_size, room = sizeof line->head - 1 - before, part = size < room ? size : room;
    memcpy(line->head + before, data, part);
    line->head_size += part;
    line->head[line->head_size] = 0;
    char *end = strstr(line->head, "\r\n\r\n");
    if (!end) return part;
    end[2] = 0;
    line->status = atoi(line->head + 9);
    line->keep = !strcasestr(line->head, "\nconnection: close");
    char *length = strcasestr(line->head, "\ncontent-length:");
    line->left = length ? atol(length + 16) : 0;
    line->part = strcasestr(line->head, "\ntransfer-encoding: chunked") ? CHUNK_SIZE : SIZED;
    if (line->part == SIZED && line->left == 0) over(line, true);
    return (size_t)(end + 4 - line->head) - before;
}

/* One step through an answer; the bytes it used. */
static size_t read_part(Line *line, const char *data, size_t size, uint64_t at) {
    size_t part = size < (size_t)line->left ? size : (size_t)line->left;
    switch (line->part) {
    case HEAD:
        return read_head(line, data, size);
    case SIZED:
    case CHUNK:
        read_body(line, data, part, at);
        line->left -= (long)part;
        if (line->left == 0 && line->part == SIZED) over(line, true);
        else if (line->left == 0) line->part = CHUNK_END;
        return part;
    case CHUNK_SIZE:
        if (*data == '\n') {
            line->size_digits[line->digits] = 0;
            line->left = strtol(line->size_digits, NULL, 16);
            line->digits = 0;
            line->part = line->left ? CHUNK : TRAILER;
        } else if (line->digits < sizeof line->size_digits - 1) {
            line->size_digits[line->digits++] = *data;
        }
        return 1;
    case CHUNK_END:
        if (*data == '\n') line->part = CHUNK_SIZE;
        return 1;
    case TRAILER:
        if (*data == '\n' && line->digits == 0) over(line, true);
        else if (*data == '\n') line->digits = 0;
        else if (*data != '\r') line->digits++;
        return 1;
    }
    return size;
}

static void hear(Line *line) {
    static char data[1 << 18];
    ssize_t got = recv(line->fd, data, sizeof data, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        if (line->busy) over(line, false);
        else hang_up(line);
        return;
    }
    uint64_t at = now();
    for (size_t used = 0; line->busy && used < (size_t)got;) used += read_part(line, data + used, (size_t)got - used, at);
}

static void make_request(const char *body_file, const char *headers) {
    char *body = NULL;
    size_t size = 0;
    if (body_file) {
        FILE *file = fopen(body_file, "rb");
        if (!file) { perror(body_file); exit(2); }
        fseek(file, 0, SEEK_END);
        size = (size_t)ftell(file);
        rewind(file);
        body = malloc(size + 1);
        if (fread(body, 1, size, file) != size) exit(2);
        fclose(file);
    }
    request = malloc(size + 8192);
    int head = snprintf(request, 8192,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nUser-Agent: OpenAI/Python 3.0.0\r\n%sContent-Length: %zu\r\n\r\n", port, headers, size);
    if (size) memcpy(request + head, body, size);
    request_size = (size_t)head + size;
    free(body);
}

static int ascending(const void *one, const void *other) {
    float a = *(const float *)one, b = *(const float *)other;
    return (a > b) - (a < b);
}

static void print_times(const char *name, Times *times) {
    if (!times->count) { printf(",\"%s\":null", name); return; }
    qsort(times->values, times->count, sizeof(float), ascending);
    size_t last = times->count - 1;
    printf(",\"%s\":{\"p50\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, times->values[last / 2], times->values[last * 99 / 100], times->values[last]);
}

static void print_all(Line *lines, long count, double seconds) {
    long open = 0;
    for (long i = 0; i < count; i++) open += lines[i].busy && lines[i].events > 0;
    printf("{\"good\":%ld,\"bad\":%ld,\"unfinished\":%ld,\"reconnected\":%ld,\"open\":%ld,\"seconds\":%.4f,\"events\":%ld", good, bad,
           unfinished, reconnected, open, seconds, events);
    print_times("latency", &latency);
    print_times("first", &first);
    print_times("delay", &delay);
    printf("}\n");
}

int main(int count, char **words) {
    struct rlimit files = {65536, 65536};
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    if (count < 2) return 2;
    port = atoi(words[1]);
    long connections = 1, requests = 0;
    double duration = 0;
    bool hold = false;
    const char *body_file = NULL;
    char headers[4096] = "";
    optind = 2;
    for (int option; (option = getopt(count, words, "c:n:d:b:H:so")) != -1;) {
        switch (option) {
        case 'c': connections = atol(optarg); break;
        case 'n': requests = atol(optarg); break;
        case 'd': duration = atof(optarg); break;
        case 'b': body_file = optarg; break;
        case 'H': strncat(headers, optarg, 2000); strcat(headers, "\r\n"); break;
        case 's': streams = true; break;
        case 'o': hold = true; break;
        default: return 2;
        }
    }
    make_request(body_file, headers);
    poller = epoll_create1(0);
    Line *lines = calloc((size_t)connections, sizeof *lines);
    if (hold) requests = connections;
    for (long i = 0; i < connections; i++) dial(&lines[i]);
    uint64_t began = now(), until = duration > 0 ? began + (uint64_t)(duration * 1e9) : UINT64_MAX, ended = began;
    uint64_t patience = duration > 0 ? until + 30000000000u : UINT64_MAX;
    for (long i = 0; i < connections && (!requests || issued < requests); i++) ask(&lines[i]);
    struct epoll_event found[256];
    while (running && now() < (hold ? until : patience)) {
        struct timespec wait = {0, 50000000};
        int number = epoll_pwait2(poller, found, 256, &wait, NULL);
        for (int i = 0; i < number; i++) {
            Line *line = found[i].data.ptr;
            if (!line->connected) continue;
            hear(line);
            if (line->busy) continue;
            ended = now();
            if (!hold && (!requests || issued < requests) && ended < until) ask(line);
        }
    }
    print_all(lines, connections, (double)((hold ? now() : ended) - began) / 1e9);
    return 0;
}
