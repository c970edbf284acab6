"""``serve --workers N``: a parent that serves nothing, and N gateways that share its ports.

The parent runs no event loop and no thread, so that it may fork at any time: when a worker crashes, another one is
forked in its place, with the same number (hence the same journal) and the same listening sockets. What the workers
tell each other passes through it (``proxy.workers_hub``). It ends when all workers have; its exit status is 0 when each
did so by itself after it was told to.
"""

import asyncio
import gc
import logging
import os
import secrets
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

import uvloop

from proxy.config import Config
from proxy.log import Direct
from proxy.serving import Place, Ports, serving, settle_memory
from proxy.workers_channel import Message, Ready, Stop, Unframer, framed
from proxy.workers_hub import Hub
from proxy.workers_link import Siblings
from proxy.workers_sockets import groups

log = logging.getLogger("draftlane.workers")

TURN_SECONDS = 0.2
"""Longest wait of the parent for anything: its clock for restarts and for workers that do not answer."""
SHORTEST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 5.0
SETTLED_SECONDS = 30.0
"""A worker that served for so long has nothing to do with the crash before it."""
SLACK_SECONDS = 10.0
"""Beyond ``grace_seconds``, for journal and log; then a worker that does not end is killed."""
UNSENT_BYTES = 64 * 1024 * 1024
"""A worker that leaves so much unread has hung; it is killed, and another one takes its place."""


class Worker:
    """One worker as the parent sees it; ``pid`` 0 while there is no process."""

    def __init__(self, number: int, public: list[socket.socket], admin: list[socket.socket]) -> None:
        self.number = number
        self.public = public
        self.admin = admin
        self.pid = 0
        self.channel: socket.socket | None = None
        self.unframer = Unframer()
        self.unsent = bytearray()
        self.began_at = 0.0
        self.failures = 0
        self.again_at = 0.0


class Parent:
    """See the module. ``announce`` is told the ports when all workers serve for the first time."""

    def __init__(self, config: Config, announce: Callable[[Ports], None]) -> None:
        """Binds the ports: raises OSError when one is taken."""
        server = config.server
        self._config = config
        self._announce = announce
        public = groups(server.host, server.port, server.workers)
        admin: list[list[socket.socket]] = [[] for _ in public]
        if server.admin_port is not None:
            admin = groups(server.admin_host, server.admin_port, server.workers)
        self._workers = [Worker(number, *sockets) for number, sockets in enumerate(zip(public, admin, strict=True), 1)]
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._lives = 0
        self._hub = Hub(self._send, time.monotonic)
        self._selector = selectors.DefaultSelector()
        self._yet_to_serve = {worker.number for worker in self._workers}
        """Workers that have not served yet; a start that fails ends everything."""
        self._stopped_at: float | None = None
        self._status = 0

    def run(self) -> int:
        """Until all workers have ended; the exit status."""
        alarm, self._alarm = socket.socketpair()
        alarm.setblocking(False)
        self._alarm.setblocking(False)
        self._selector.register(alarm, selectors.EVENT_READ, None)
        signal.set_wakeup_fd(self._alarm.fileno(), warn_on_full_buffer=False)
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(name, lambda *_: None)
        gc.collect()
        gc.freeze()  # what is shared with the workers stays shared: no reference counts of the collector are written
        for worker in self._workers:
            self._fork(worker)
        while self._turn(alarm):
            pass
        return self._status

    def _turn(self, alarm: socket.socket) -> bool:
        """Wait for something and deal with it; False when all is over."""
        for key, ready in self._selector.select(TURN_SECONDS):
            if key.fileobj is alarm:
                for signal_number in alarm.recv(4096):
                    if signal_number != signal.SIGCHLD:
                        self._stop(at_once=self._stopped_at is not None)
            elif key.data.channel is key.fileobj:
                self._exchange(key.data, ready)
        self._reap()
        self._hub.tick()
        now = time.monotonic()
        if self._stopped_at is None:
            for worker in self._workers:
                if not worker.pid and worker.again_at <= now:
                    self._fork(worker)
            return True
        if now > self._stopped_at + self._config.server.grace_seconds + SLACK_SECONDS:
            self._kill()
        return any(worker.pid for worker in self._workers)

    # -- the workers' lives
    def _fork(self, worker: Worker) -> None:
        self._lives += 1
        replica = f"{self._name}-{self._lives}"
        ours, theirs = socket.socketpair()
        worker.pid = os.fork()
        if worker.pid == 0:
            self._be(worker, Siblings(worker.number, replica, theirs), ours)
        theirs.close()
        ours.setblocking(False)
        worker.channel, worker.unframer, worker.unsent = ours, Unframer(), bytearray()
        worker.began_at = time.monotonic()
        self._selector.register(ours, selectors.EVENT_READ, worker)
        self._hub.joined(worker.number, replica)

    def _be(self, worker: Worker, siblings: Siblings, parents_end: socket.socket) -> None:
        """The rest of a worker's life. Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for name in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(name, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everybody; the parent passes it on
            parents_end.close()
            for other in self._workers:  # only the parent may hold the parent's ends: their closing tells of its death
                if other.channel is not None:
                    other.channel.close()
                for listening in (*other.public, *other.admin):
                    if listening not in (*worker.public, *worker.admin):
                        listening.close()
            self._selector.close()
            self._alarm.close()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(self._config, Place(siblings, worker.public, worker.admin)))
            status = 0
        except SystemExit:
            pass  # said in the log by whoever raised it
        except BaseException:  # noqa: BLE001  # whatever it is, this process must not go on as a second parent
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        for worker in self._workers:
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._buried(worker, os.waitstatus_to_exitcode(status))

    def _buried(self, worker: Worker, status: int) -> None:
        if worker.channel is not None:
            self._exchange(worker, selectors.EVENT_READ)  # its last words
        self._hang_up(worker)
        self._hub.left(worker.number)
        worker.pid = 0
        if self._stopped_at is not None:
            self._status = self._status or (status != 0)
            return
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        if worker.number in self._yet_to_serve:
            log.error("worker %d %s before it served: giving up", worker.number, how)
            self._status = 1
            self._stop(at_once=True)
            return
        now = time.monotonic()
        worker.failures = 0 if now - worker.began_at > SETTLED_SECONDS else worker.failures + 1
        pause = min(LONGEST_BACKOFF_SECONDS, SHORTEST_BACKOFF_SECONDS * 2.0 ** min(worker.failures, 10))
        worker.again_at = now + pause
        log.error("worker %d %s; another one follows in %.1f s", worker.number, how, pause)

    def _stop(self, at_once: bool) -> None:
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        log.info("stopping %s", "at once" if at_once else "when what runs has ended")
        for worker in self._workers:
            self._send(worker.number, Stop(at_once))

    def _kill(self) -> None:
        for worker in self._workers:
            if worker.pid:
                log.error("worker %d does not end: killed", worker.number)
                os.kill(worker.pid, signal.SIGKILL)

    # -- the channels
    def _send(self, number: int, message: Message) -> None:
        worker = self._workers[number - 1]
        if worker.channel is None:
            return
        worker.unsent += framed(message)
        self._push(worker)
        if len(worker.unsent) > UNSENT_BYTES:
            log.error("worker %d listens no longer: killed", worker.number)
            os.kill(worker.pid, signal.SIGKILL)
            self._hang_up(worker)

    def _push(self, worker: Worker) -> None:
        channel = worker.channel
        assert channel is not None
        try:
            del worker.unsent[: channel.send(worker.unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone; waitpid will tell how
            worker.unsent.clear()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.unsent else 0)
        if self._selector.get_key(channel).events != wanted:
            self._selector.modify(channel, wanted, worker)

    def _exchange(self, worker: Worker, ready: int) -> None:
        channel = worker.channel
        assert channel is not None
        if ready & selectors.EVENT_WRITE:
            self._push(worker)
        while ready & selectors.EVENT_READ:
            try:
                data = channel.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._hang_up(worker)
                return
            for message in worker.unframer.feed(data):
                self._hear(worker, message)

    def _hear(self, worker: Worker, message: Message) -> None:
        self._hub.hear(worker.number, message)
        if isinstance(message, Ready) and self._yet_to_serve:
            self._yet_to_serve.discard(worker.number)
            if not self._yet_to_serve:
                first = self._workers[0]
                self._announce(Ports(_port(first.public) or 0, _port(first.admin)))

    def _hang_up(self, worker: Worker) -> None:
        if worker.channel is not None:
            self._selector.unregister(worker.channel)
            worker.channel.close()
            worker.channel = None


async def _serve(config: Config, place: Place) -> None:
    """Serve as a worker until the parent says stop, or is gone, or somebody sends SIGTERM."""
    siblings = place.siblings
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, siblings.stopping.set)
    async with serving(config, place) as (_, _, server):
        settle_memory()
        siblings.ready()
        log.info("worker %d serves (process %d)", siblings.worker, os.getpid())
        await siblings.stopping.wait()

        async def hurry() -> None:
            await siblings.at_once.wait()
            server.force_exit = True

        hurrying = asyncio.create_task(hurry())
    hurrying.cancel()


def _port(sockets: list[socket.socket]) -> int | None:
    return int(sockets[0].getsockname()[1]) if sockets else None


def run(config: Config, announce: Callable[[Ports], None]) -> int:
    """Serve with ``config.server.workers`` processes; the exit status."""
    root = logging.getLogger()
    root.handlers[:] = [Direct(sys.stderr, config.log.format)]
    root.setLevel(config.log.level.upper())
    try:
        parent = Parent(config, announce)
    except OSError as error:
        log.error("cannot listen: %s", error.strerror or error)
        return 1
    return parent.run()
