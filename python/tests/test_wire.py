"""Connections between machines, all of which are in this process: what messages arrive, what a loss says, how machines
find each other. With Python's own library alone."""
import array
import ctypes
import os
import random
import socket
import sys
import threading
import time
import unittest
from unittest import mock

import frugal
from frugal import machines as module
from frugal._library import c

LIMIT = 60  # seconds that a test waits


class Gather:
    """One for each of several threads: what all have given."""

    def __init__(self, n):
        self.barrier, self.given = threading.Barrier(n), [None] * n

    def of(self, number):
        def gather(given):
            self.given[number] = given
            self.barrier.wait(LIMIT)
            return list(self.given)
        return gather


def all_at_once(calls):
    """What each call returns, or raises, in a thread of its own."""
    made = [None] * len(calls)

    def run(number):
        try:
            made[number] = calls[number]()
        except Exception as error:
            made[number] = error
    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def machines_of(n, **options):
    gather = Gather(n)
    return [frugal.Machines(number, n, gather.of(number), address="127.0.0.1", **options) for number in range(n)]


class End:
    """A machine's end of its connections, with the calls that the library makes."""

    REQUESTS = 64
    KINDS = {"begin": (ctypes.c_int, ctypes.c_uint32),
             "send": (ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p),
             "receive": (ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p),
             "done": (ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_size_t)),
             "lost": (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t),
             "end": (None,)}

    def __init__(self, wire):
        self.wire, self.free = wire, list(range(self.REQUESTS))
        self.kept = {}
        assert self.call("begin", self.REQUESTS) == 0

    def call(self, name, *arguments):
        result, *kinds = self.KINDS[name]
        function = ctypes.CFUNCTYPE(result, ctypes.c_void_p, *kinds)(getattr(self.wire.wire, name))
        return function(self.wire.wire.self, *arguments)

    def begin(self, call, peer, tag, head, body):
        """A request whose head and body are these buffers."""
        request = self.free.pop(random.randrange(len(self.free)))
        parts = [(ctypes.c_char * max(len(part), 1)).from_buffer(part) if part else None for part in (head, body)]
        parcel = c.frugal_parcel(peer=peer, tag=tag, head_bytes=len(head), body_bytes=len(body),
                                 head=parts[0] and ctypes.addressof(parts[0]),
                                 body=parts[1] and ctypes.addressof(parts[1]))
        self.kept[request] = parts
        assert self.call(call, request, ctypes.byref(parcel)) == 0
        return request

    def done(self, request):
        """The length of a message that is done, else None."""
        length = ctypes.c_size_t()
        if not self.call("done", request, ctypes.byref(length)):
            return None
        self.kept.pop(request)
        self.free.append(request)
        return length.value

    def lost(self):
        text = ctypes.create_string_buffer(200)
        return self.call("lost", text, len(text)), text.value.decode()

    def close(self):
        self.wire.close()


def until(ready):
    """What `ready` returns, once it is true."""
    since = time.monotonic()
    while True:
        made = ready()
        if made:
            return made
        if time.monotonic() - since > LIMIT:
            raise AssertionError("waited too long")
        time.sleep(1e-4)


class Messages(unittest.TestCase):
    def open(self, n):
        wires = all_at_once([one.connect for one in machines_of(n)])
        for wire in wires:
            self.assertIsInstance(wire, module.Wire)
        ends = [End(wire) for wire in wires]
        self.addCleanup(lambda: all_at_once([end.close for end in ends]))
        return ends

    def test_random_messages(self):
        seed = int(os.environ.get("FRUGAL_SEED", random.randrange(1 << 32)))
        print(f"FRUGAL_SEED={seed}")
        random.seed(seed)
        ends = self.open(3)
        sizes = [0, 1, 7, 8, 100, 5000, 70000, 300000]
        left = []  # messages that are not sent: from, to, tag, head, body
        wanted, sends, receives = {}, [], []
        for _ in range(300):
            source, to = random.sample(range(3), 2)
            head, body = (bytearray(random.randbytes(random.choice(sizes))) for _ in range(2))
            left.append((source, to, random.randrange(3), head, body))
        to_receive = [(source, to, tag, len(head), len(body)) for source, to, tag, head, body in left]
        while left or to_receive or sends or receives:
            if left and random.random() < 0.3 and len(ends[left[0][0]].free) > 8:
                source, to, tag, head, body = left.pop(0)
                wanted.setdefault((source, to, tag), []).append(bytes(head + body))
                sends.append((ends[source], ends[source].begin("send", to, tag, head, body)))
            # Of each machine and tag the first; lengths of head and body may be others than the sender's.
            if to_receive and random.random() < 0.3 and len(ends[to_receive[0][1]].free) > 8:
                source, to, tag, head, body = to_receive.pop(0)
                room = head + body + random.choice([0, 0, 9])
                at = random.choice([head, min(head, 8), room])
                parts = bytearray(at), bytearray(room - at)
                request = ends[to].begin("receive", source, tag, *parts)
                receives.append(((source, to, tag), ends[to], request, parts))
            for one in random.sample(sends, len(sends)):
                if one[0].done(one[1]) is not None:
                    sends.remove(one)
            firsts = set()
            for one in list(receives):  # in order of their beginnings, so that the first of a tag is seen first
                key, end, request, parts = one
                length = end.done(request) if key not in firsts else None
                if length is None:
                    firsts.add(key)
                    continue
                self.assertEqual(bytes(parts[0] + parts[1])[:length], wanted[key].pop(0))
                receives.remove(one)
        self.assertFalse(any(wanted.values()))
        self.assertEqual([end.lost()[0] for end in ends], [0, 0, 0])

    def test_what_was_sent_arrives_behind_the_end(self):
        one, two = self.open(2)
        large = bytearray(b"x" * 200000)
        last = [one.begin("send", 1, tag, bytearray(b"last"), large) for tag in (5, 6)]
        room = [(bytearray(4), bytearray(300000)) for _ in last]
        first = two.begin("receive", 0, 5, *room[0])
        for request in last:
            until(lambda: (two.done(first) if first in two.kept else 0, one.done(request) is not None)[1])
        one.call("end")
        closing = threading.Thread(target=one.close)
        closing.start()
        second = two.begin("receive", 0, 6, *room[1])
        self.assertEqual(until(lambda: two.done(second)), 200004)
        self.assertEqual(bytes(room[1][0] + room[1][1][:200000]), b"last" + large)
        for _ in range(20):  # it has ended, and is not lost
            self.assertEqual(two.lost()[0], 0)
            time.sleep(1e-3)
        self.assertEqual(two.done(two.begin("send", 0, 7, bytearray(9), bytearray(10 ** 7))), 10 ** 7 + 9)
        two.call("end")
        two.close()
        closing.join()

    def test_a_machine_that_is_lost(self):
        ends = self.open(3)
        pending = ends[0].begin("receive", 2, 1, bytearray(8), bytearray())
        ends[2].close()  # without an end, as the system closes what a killed process has
        for end in ends[:2]:
            lost, text = until(lambda: end.lost() if end.lost()[0] else None)
            self.assertEqual(lost, 3)
            self.assertRegex(text, "its process has ended, or closed the connection|its connection ended: ")
        self.assertIsNone(ends[0].done(pending))
        sent = ends[0].begin("send", 1, 1, bytearray(b"still here"), bytearray())
        got = bytearray(10)
        received = ends[1].begin("receive", 0, 1, got, bytearray())
        self.assertEqual(until(lambda: ends[1].done(received)), 10)
        self.assertEqual(bytes(got), b"still here")
        until(lambda: ends[0].done(sent))

    def test_a_forked_child_keeps_no_connection(self):
        one, two = self.open(2)
        reads, writes = os.pipe()
        child = os.fork()
        if not child:  # such as a data loader's worker, which outlives its parent
            os.close(writes)
            os.read(reads, 1)
            os._exit(0)
        one.close()
        self.assertEqual(until(lambda: two.lost()[0]), 1)
        os.close(writes)
        os.waitpid(child, 0)
        os.close(reads)

    def test_a_message_that_is_too_long(self):
        for before in (True, False):
            one, two = self.open(2)
            room = bytearray(8), bytearray(8)
            if before:
                two.begin("receive", 0, 4, *room)
            one.begin("send", 1, 4, bytearray(17), bytearray())
            if not before:
                one.begin("send", 1, 5, bytearray(1), bytearray())
                later = two.begin("receive", 0, 5, bytearray(1), bytearray())
                until(lambda: two.done(later))
                two.begin("receive", 0, 4, *room)
            lost, text = until(lambda: two.lost() if two.lost()[0] else None)
            self.assertEqual((lost, text), (1, "a message of it, with tag 4, has 17 bytes, and there is room for 16"))


class Meeting(unittest.TestCase):
    def test_a_stranger_is_turned_away(self):
        one, two = machines_of(2)
        gather = one._gather

        def slow(given):
            made = gather(given)
            with socket.create_connection(("127.0.0.1", given["port"]), LIMIT) as stranger:
                stranger.sendall(b"x" * 100)
            return made
        one._gather = slow
        wires = all_at_once([one.connect, two.connect])
        self.assertEqual([type(wire) for wire in wires], [module.Wire] * 2)
        all_at_once([wire.close for wire in wires])

    def test_what_differs_is_named_with_both_values(self):
        for what, own, value in (("version", frugal.__version__, "9.9.9"), ("machines", 2, 3),
                                 ("order", sys.byteorder, "middle")):
            one = frugal.Machines(0, 2, lambda given: [given, dict(given, **{what: value})])
            with self.assertRaisesRegex(frugal.errors.SettingsError,
                                        rf"{what}: machine 0 has {own}, and machine 1 has {value}\. \w+"):
                one.connect()

    def test_who_does_not_come_is_named(self):
        one, two = machines_of(2, seconds=0.3)
        made = all_at_once([one.connect, lambda: two._gather(dict(two_like(), port=1))])
        self.assertIsInstance(made[0], TimeoutError)
        self.assertRegex(str(made[0]), r"machine 1 has not connected within 0.3 s\. All machines open the same")

    def test_who_cannot_be_reached_is_named(self):
        one, two = machines_of(2, seconds=1)
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        made = all_at_once([lambda: one._gather(dict(two_like(), port=port)), two.connect])
        self.assertIsInstance(made[1], ConnectionError)
        self.assertRegex(str(made[1]), rf"machine 0 \(.*\) cannot be reached at 127.0.0.1, port {port}: .*address=")

    def test_a_gather_that_returns_something_else(self):
        with self.assertRaisesRegex(ValueError, "a list of 2 is wanted, what each machine gave; 1 were returned"):
            frugal.Machines(0, 2, lambda given: [given]).connect()
        with self.assertRaisesRegex(ValueError, "at its number, 1; something else"):
            frugal.Machines(1, 2, lambda given: [given, None]).connect()

    def test_where_a_machine_is(self):
        there = {"address": "10.1.2.3", "host": "b"}
        self.assertEqual(module.address_of(there, "a"), "10.1.2.3")
        there["address"] = "127.0.1.1"  # as Debian's /etc/hosts says of each host
        self.assertEqual(module.address_of(there, "a"), "b")
        self.assertEqual(module.address_of(there, "b"), "127.0.1.1")
        with mock.patch.dict(os.environ, MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME=""):
            self.assertEqual(module._own_address(), "127.0.0.1")
        if not sys.platform.startswith("linux"):
            return
        with mock.patch.dict(os.environ, GLOO_SOCKET_IFNAME="lo"):
            self.assertEqual(module._own_address(), "127.0.0.1")
        with mock.patch.dict(os.environ, GLOO_SOCKET_IFNAME="none7"), \
                self.assertRaisesRegex(OSError, "the interface none7, of GLOO_SOCKET_IFNAME, has no address"):
            module._own_address()

    def test_arguments(self):
        for machine, machines in ((2, 2), (0, 0), (0, 255)):
            with self.assertRaisesRegex(ValueError, f"machine {machine} of {machines} was given"):
                frugal.Machines(machine, machines, list)
        with self.assertRaisesRegex(ValueError, "deal: one of cyclic, blocks"):
            frugal.Machines(0, 2, list, deal="striped")
        with self.assertRaisesRegex(ValueError, "give the list"):
            frugal.Machines(0, 2, list, deal="listed")
        with self.assertRaisesRegex(TypeError, "an array of uint8 is wanted; 7 was given"):
            frugal.Machines(0, 2, list, deal=7)
        with self.assertRaisesRegex(TypeError, "uint8.*format 'q'"):
            frugal.Machines(0, 2, list, deal=array.array("q", [0, 1]))

    def test_own_keys(self):
        rows = [7, 1, 12]
        homes = bytes(random.Random(3).choices(range(3), k=20))
        for deal in ("cyclic", "blocks", homes):
            of = {"cyclic": lambda number: number % 3, "blocks": lambda number: number // 7}.get(
                deal if isinstance(deal, str) else "", lambda number: homes[number])
            for machine in range(3):
                one = frugal.Machines(machine, 3, list, deal=deal)
                for table, n in enumerate(rows):
                    first = sum(rows[:table])
                    self.assertEqual(list(one.keys_of(first, n, 20)),
                                     [key for key in range(n) if of(first + key) == machine])


def two_like():
    """What a machine gives that has the settings of the others."""
    return {"version": frugal.__version__, "order": sys.byteorder, "machines": 2, "host": socket.gethostname(),
            "address": "127.0.0.1", "token": bytes(module.TOKEN)}


if __name__ == "__main__":
    unittest.main()
