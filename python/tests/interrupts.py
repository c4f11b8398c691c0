"""KeyboardInterrupt at the n-th place where Python looks for signals: after a call, after a jump, where a function
begins."""
import dis
import re
import sys


class Interrupt:
    """`with Interrupt(n, part) as interrupt:` raises KeyboardInterrupt at the n-th such place in files whose name has
    `part`, and ends it quietly. `interrupt.left` is above 0 if there were fewer places."""

    def __init__(self, at: int, part: str):
        self.left, self.part, self.latest = at, part, {}

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind, error, where):
        sys.settrace(self.before)
        self.latest.clear()
        return kind is KeyboardInterrupt

    def trace(self, frame, event, _):
        if self.part not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if re.match("CALL|RESUME|JUMP", self.latest.get(frame, "")):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
            self.latest[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        elif event == "return":
            self.latest.pop(frame, None)
        return self.trace
