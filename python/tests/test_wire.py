"""Wires over torch.distributed between machines that are all in this process: what messages arrive, what a loss says;
what a machine refuses, and which rows it has."""
import array
import ctypes
import os
import random
import signal
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from unittest import mock

try:
    import torch.distributed as dist
except ImportError as error:
    raise unittest.SkipTest("PyTorch is not installed") from error
if not dist.is_available() or not dist.is_gloo_available():
    raise unittest.SkipTest("this PyTorch has no gloo")

import frugal_embedding as frugal
from frugal_embedding._library import c
from frugal_embedding.machines import Dealt
from frugal_embedding.torch.machines import Gloo

LIMIT = 60  # seconds that a test waits


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


def groups_of(n):
    """A group of n ranks, in this process."""
    store = dist.HashStore()
    return all_at_once([lambda rank=rank: dist.ProcessGroupGloo(store, rank, n, timedelta(seconds=LIMIT))
                        for rank in range(n)])


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

    def threads(self):
        return [thread for peer in self.wire.peers.values() for thread in peer.threads]


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
    def open(self, n, groups=None, number=1):
        ends = [End(Gloo(Dealt(rank, n, "cyclic"), group, number)) for rank, group in enumerate(groups or groups_of(n))]
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

    def test_wires_of_one_group_are_apart(self):
        groups = groups_of(2)
        wires = [self.open(2, groups, number) for number in (1, 2)]
        got = [bytearray(3) for _ in wires]
        for (one, _), text in zip(wires, (b"one", b"two")):
            one.begin("send", 1, 4, bytearray(text), bytearray())
        for at in (1, 0):
            request = wires[at][1].begin("receive", 0, 4, bytearray(), got[at])
            self.assertEqual(until(lambda: wires[at][1].done(request)), 3)
        self.assertEqual(got, [b"one", b"two"])

    def test_nothing_is_written_behind_the_end(self):
        one, two = self.open(2)
        room = bytearray(8), bytearray(8)
        two.begin("receive", 0, 4, *room)
        two.call("end")
        one.begin("send", 1, 4, bytearray(b"x" * 16), bytearray(b"y" * 10 ** 6))
        one.call("end")
        all_at_once([one.close, two.close])
        self.assertEqual(room, (bytearray(8), bytearray(8)))
        self.assertEqual([end.lost()[0] for end in (one, two)], [0, 0])
        self.assertFalse(any(thread.is_alive() for end in (one, two) for thread in end.threads()))

    def test_a_machine_that_does_not_answer_is_not_waited_for(self):
        one, _ = (Gloo(Dealt(rank, 2, "cyclic"), group, 1) for rank, group in enumerate(groups_of(2)))
        one = End(one)
        with mock.patch("frugal_embedding.torch.machines.LINGER", 0.1):
            one.call("end")
            one.close()
        self.assertTrue(all(thread.is_alive() for thread in one.threads()))

    def test_a_machine_that_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            child = os.fork()
            if not child:
                group = dist.ProcessGroupGloo(dist.FileStore(f"{folder}/store", 3), 2, 3, timedelta(seconds=LIMIT))
                End(Gloo(Dealt(2, 3, "cyclic"), group, 1))
                time.sleep(LIMIT)
                os._exit(1)
            try:
                ends = self.open(3, all_at_once([lambda rank=rank: dist.ProcessGroupGloo(
                    dist.FileStore(f"{folder}/store", 3), rank, 3, timedelta(seconds=LIMIT)) for rank in range(2)]))
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        pending = ends[0].begin("receive", 2, 1, bytearray(8), bytearray())
        for end in ends:
            lost, text = until(lambda: end.lost() if end.lost()[0] else None)
            self.assertEqual(lost, 3)
            self.assertRegex(text, "^its connection ended: [^\\[]")
        self.assertIsNone(ends[0].done(pending))
        sent = ends[0].begin("send", 1, 1, bytearray(b"still here"), bytearray())
        got = bytearray(10)
        received = ends[1].begin("receive", 0, 1, got, bytearray())
        self.assertEqual(until(lambda: ends[1].done(received)), 10)
        self.assertEqual(bytes(got), b"still here")
        self.assertEqual(ends[0].done(sent), 10)

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


class Machines(unittest.TestCase):
    def test_what_differs_is_named_with_both_values(self):
        for what, own, value in (("version", frugal.__version__, "9.9.9"), ("order", sys.byteorder, "middle")):
            one = Dealt(0, 2, "cyclic")
            one.gather = lambda given: [given, dict(given, **{what: value})]
            with self.assertRaisesRegex(frugal.errors.SettingsError,
                                        rf"{what}: machine 0 has {own}, and machine 1 has {value}\. \w+"):
                one.connect()

    def test_a_wire_that_fails_is_a_loss(self):
        one, _ = groups_of(2)
        end = End(Gloo(Dealt(0, 2, "cyclic"), one, 1))
        end.call("send", 0, ctypes.byref(c.frugal_parcel(peer=7)))
        self.assertEqual(end.lost(), (1, "its wire has failed: KeyError: 7"))

    def test_arguments(self):
        for machine, machines in ((2, 2), (0, 0), (0, 255)):
            with self.assertRaisesRegex(ValueError, f"machine {machine} of {machines} was given"):
                Dealt(machine, machines, "cyclic")
        with self.assertRaisesRegex(ValueError, "deal: one of cyclic, blocks"):
            Dealt(0, 2, "striped")
        with self.assertRaisesRegex(ValueError, "give the list"):
            Dealt(0, 2, "listed")
        with self.assertRaisesRegex(TypeError, "an array of uint8 is wanted; 7 was given"):
            Dealt(0, 2, 7)
        with self.assertRaisesRegex(TypeError, "uint8.*format 'q'"):
            Dealt(0, 2, array.array("q", [0, 1]))

    def test_own_keys(self):
        rows = [7, 1, 12]
        homes = bytes(random.Random(3).choices(range(3), k=20))
        for deal in ("cyclic", "blocks", homes):
            of = {"cyclic": lambda number: number % 3, "blocks": lambda number: number // 7}.get(
                deal if isinstance(deal, str) else "", lambda number: homes[number])
            for machine in range(3):
                one = Dealt(machine, 3, deal)
                for table, n in enumerate(rows):
                    first = sum(rows[:table])
                    self.assertEqual(list(one.keys_of(first, n, 20)),
                                     [key for key in range(n) if of(first + key) == machine])


if __name__ == "__main__":
    unittest.main()
