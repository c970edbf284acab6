/* A backend that costs next to nothing: one thread, epoll, canned OpenAI answers. For measuring what stands before it.

   usage: backend PORT        listens on 127.0.0.1; port 0 takes a free one; prints the port

   POST anything. The request body is searched, not parsed:
     "stream":true    an SSE stream, else one JSON document of 1 KB
     "max_tokens":N   content events in the stream (about 240 bytes each, one write each)
     "seed":G         milliseconds from one event to the next; 0: as fast as the connection takes them
   Each content event carries "@T" and the monotonic clock in 19 digits, so that the client knows how long it was under way.
   GET anything: a list with the one model "stub-model". */
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

typedef struct Peer {
    int fd;
    bool gone, streaming, blocked, opened;
    char *in;
    size_t in_size, in_room;
    char *out; /* what the socket did not take yet */
    size_t out_size, out_sent, out_room;
    long events, told;
    uint64_t gap, due; /* nanoseconds */
    size_t place;      /* in the heap or the list of hurried streams; see below */
} Peer;

static int poller;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Paced streams: a heap by the time of the next event. Hurried ones (no gap): a list, one event each in turn. */
static Peer **heap, **hurried;
static size_t paced_count, paced_room, hurried_count, hurried_room;

static void put(size_t at, Peer *peer) {
    heap[at] = peer;
    peer->place = at;
}

static void rise(size_t at) {
    Peer *peer = heap[at];
    while (at > 1 && heap[at / 2]->due > peer->due) {
        put(at, heap[at / 2]);
        at /= 2;
    }
    put(at, peer);
}

static void sink(size_t at) {
    Peer *peer = heap[at];
    for (;;) {
        size_t child = 2 * at;
        if (child > paced_count) break;
        if (child < paced_count && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= peer->due) break;
        put(at, heap[child]);
        at = child;
    }
    put(at, peer);
}

static void pace(Peer *peer) {
    if (paced_count + 2 > paced_room) heap = realloc(heap, (paced_room = 2 * paced_room + 1024) * sizeof *heap);
    put(++paced_count, peer);
    rise(paced_count);
}

static void unpace(Peer *peer) {
    size_t at = peer->place;
    Peer *last = heap[paced_count--];
    peer->place = 0;
    if (last == peer) return;
    put(at, last);
    rise(at);
    sink(last->place);
}

static void hurry(Peer *peer) {
    if (hurried_count == hurried_room) hurried = realloc(hurried, (hurried_room = 2 * hurried_room + 256) * sizeof *hurried);
    hurried[hurried_count++] = peer;
}

static void lose(Peer *peer) {
    if (peer->gone) return;
    peer->gone = true;
    if (peer->place) unpace(peer);
    close(peer->fd);
}

static void watch(Peer *peer, bool for_room) {
    if (peer->blocked == for_room) return;
    peer->blocked = for_room;
    struct epoll_event wanted = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0), .data.ptr = peer};
    epoll_ctl(poller, EPOLL_CTL_MOD, peer->fd, &wanted);
}

static void say(Peer *peer, const char *data, size_t size) {
    if (peer->gone) return;
    if (peer->out_sent == peer->out_size) {
        peer->out_sent = peer->out_size = 0;
        ssize_t taken = send(peer->fd, data, size, MSG_NOSIGNAL);
        if (taken < 0 && errno != EAGAIN) { lose(peer); return; }
        if (taken > 0) { data += taken; size -= (size_t)taken; }
        if (size == 0) return;
    }
    if (peer->out_size + size > peer->out_room) peer->out = realloc(peer->out, peer->out_room = 2 * (peer->out_size + size));
    memcpy(peer->out + peer->out_size, data, size);
    peer->out_size += size;
    watch(peer, true);
}

static void flush(Peer *peer) {
    while (peer->out_sent < peer->out_size) {
        ssize_t taken = send(peer->fd, peer->out + peer->out_sent, peer->out_size - peer->out_sent, MSG_NOSIGNAL);
        if (taken < 0) {
            if (errno != EAGAIN) lose(peer);
            return;
        }
        peer->out_sent += (size_t)taken;
    }
    watch(peer, false);
}

#define ID "\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"created\":1760000000,\"model\":\"stub-model\""

static void say_event(Peer *peer, const char *before, const char *rest) {
    char event[768], chunk[1024];
    int size = snprintf(event, sizeof event, "data: {" ID ",\"object\":\"chat.completion.chunk\",%s}\n\n", rest);
    int whole = snprintf(chunk, sizeof chunk, "%s%x\r\n%s\r\n", before, (unsigned)size, event);
    say(peer, chunk, (size_t)whole);
}

#define CHOICE "\"choices\":[{\"index\":0,\"delta\":{%s},\"logprobs\":null,\"finish_reason\":%s}]"

/* The next step of a stream: head and role, the content events, then usage and the end. */
static void tell(Peer *peer) {
    char rest[512];
    if (!peer->opened) {
        peer->opened = true;
        snprintf(rest, sizeof rest, CHOICE, "\"role\":\"assistant\",\"content\":\"\"", "null");
        say_event(peer, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                        "transfer-encoding: chunked\r\n\r\n", rest);
        return;
    }
    if (peer->told < peer->events) {
        char content[64];
        snprintf(content, sizeof content, "\"content\":\"@T%019llu \"", (unsigned long long)now());
        peer->told++;
        snprintf(rest, sizeof rest, CHOICE, content, peer->told == peer->events ? "\"stop\"" : "null");
        say_event(peer, "", rest);
        if (peer->told < peer->events) return;
    }
    snprintf(rest, sizeof rest, "\"choices\":[],\"usage\":{\"prompt_tokens\":25,\"completion_tokens\":%ld,\"total_tokens\":%ld}",
             peer->events, peer->events + 25);
    say_event(peer, "", rest);
    static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    say(peer, end, sizeof end - 1);
    peer->streaming = false;
}

static void say_document(Peer *peer) {
    static char answer[2048];
    static size_t size;
    if (size == 0) {
        char words[701], body[1536];
        for (int i = 0; i < 700; i++) words[i] = i % 6 == 5 ? ' ' : 'a';
        words[700] = 0;
        int length = snprintf(body, sizeof body,
            "{" ID ",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},"
            "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":25,\"completion_tokens\":128,"
            "\"total_tokens\":153}}", words);
        size = (size_t)snprintf(answer, sizeof answer,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", length, body);
    }
    say(peer, answer, size);
}

static void say_models(Peer *peer) {
    static const char body[] = "{\"object\":\"list\",\"data\":[{\"id\":\"stub-model\",\"object\":\"model\",\"created\":1760000000,"
                               "\"owned_by\":\"stub\",\"max_model_len\":32768}]}";
    char answer[512];
    int size = snprintf(answer, sizeof answer,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", sizeof body - 1, body);
    say(peer, answer, (size_t)size);
}

static long number(const char *body, const char *key, long otherwise) {
    const char *found = strstr(body, key);
    if (!found) return otherwise;
    found += strlen(key);
    found += strspn(found, " :");
    return *found >= '0' && *found <= '9' ? atol(found) : otherwise;
}

static void serve(Peer *peer, const char *head, const char *body) {
    if (strncmp(head, "POST", 4) != 0) {
        say_models(peer);
    } else if (!strstr(body, "\"stream\":true") && !strstr(body, "\"stream\": true")) {
        say_document(peer);
    } else {
        peer->streaming = true;
        peer->opened = false;
        peer->told = 0;
        peer->events = number(body, "\"max_tokens\"", 100);
        peer->gap = (uint64_t)number(body, "\"seed\"", 0) * 1000000u;
        tell(peer);
        peer->due = now() + peer->gap;
        if (peer->gap) pace(peer); else hurry(peer);
    }
}

/* Takes one request from what was read, when all of it is there. Bodies must have a Content-Length. */
static bool take(Peer *peer) {
    if (peer->gone || peer->streaming || peer->in_size < 16) return false;
    peer->in[peer->in_size] = 0;
    char *end = strstr(peer->in, "\r\n\r\n");
    if (!end) return false;
    *end = 0;
    char *length = strcasestr(peer->in, "\ncontent-length:");
    size_t head = (size_t)(end - peer->in) + 4, whole = head + (length ? strtoul(length + 16, NULL, 10) : 0);
    if (peer->in_size < whole) {
        *end = '\r';
        return false;
    }
    char after = peer->in[whole];
    peer->in[whole] = 0;
    serve(peer, peer->in, peer->in + head);
    peer->in[whole] = after;
    peer->in_size -= whole;
    memmove(peer->in, peer->in + whole, peer->in_size);
    return true;
}

static void hear(Peer *peer) {
    for (;;) {
        if (peer->in_room - peer->in_size < 4096) peer->in = realloc(peer->in, peer->in_room *= 2);
        size_t room = peer->in_room - peer->in_size - 1;
        ssize_t got = recv(peer->fd, peer->in + peer->in_size, room, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) { lose(peer); return; }
        if (got < 0) break;
        peer->in_size += (size_t)got;
        if ((size_t)got < room) break;
    }
    while (take(peer)) {}
}

static void greet(int listener) {
    int one = 1;
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Peer *peer = calloc(1, sizeof *peer);
        peer->fd = fd;
        peer->in = malloc(peer->in_room = 16384);
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = peer};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &wanted);
    }
}

static void tell_hurried(void) {
    size_t kept = 0, before = hurried_count;
    for (size_t i = 0; i < before; i++) {
        Peer *peer = hurried[i];
        if (!peer->gone && !peer->blocked) tell(peer);
        if (!peer->gone && peer->streaming) { hurried[kept++] = peer; continue; }
        while (take(peer)) {}
    }
    memmove(hurried + kept, hurried + before, (hurried_count - before) * sizeof *hurried);
    hurried_count -= before - kept;
}

static void tell_paced(void) {
    uint64_t at = now();
    while (paced_count && heap[1]->due <= at) {
        Peer *peer = heap[1];
        tell(peer);
        if (peer->gone) continue;
        if (!peer->streaming) {
            unpace(peer);
            while (take(peer)) {}
            continue;
        }
        peer->due += peer->gap;
        if (peer->due + 5 * peer->gap < at) peer->due = at + peer->gap; /* too late to catch up: go on from here */
        sink(1);
    }
}

static int listen_at(int port) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof place;
    if (bind(listener, (struct sockaddr *)&place, size) || listen(listener, 4096)) {
        perror("listen");
        exit(1);
    }
    getsockname(listener, (struct sockaddr *)&place, &size);
    printf("%d\n", ntohs(place.sin_port));
    fflush(stdout);
    return listener;
}

static struct timespec patience(void) {
    uint64_t wait = 1000000000u;
    if (hurried_count) {
        wait = 0;
        for (size_t i = 0; i < hurried_count && !wait; i++) if (hurried[i]->blocked) wait = 1000000u;
    }
    if (paced_count) {
        uint64_t at = now(), until = heap[1]->due > at ? heap[1]->due - at : 0;
        if (until < wait) wait = until;
    }
    return (struct timespec){.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
}

int main(int count, char **words) {
    struct rlimit files = {65536, 65536};
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    int listener = listen_at(count > 1 ? atoi(words[1]) : 0);
    poller = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = NULL}, found[512];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &wanted);
    for (;;) {
        struct timespec wait = patience();
        int number_found = epoll_pwait2(poller, found, 512, &wait, NULL);
        for (int i = 0; i < number_found; i++) {
            Peer *peer = found[i].data.ptr;
            if (!peer) { greet(listener); continue; }
            if (!peer->gone && found[i].events & EPOLLOUT) flush(peer);
            if (!peer->gone && found[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) hear(peer);
        }
        if (hurried_count) tell_hurried();
        tell_paced();
    }
}
