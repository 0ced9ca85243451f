"""Runs scripts in copies of one Python that has imported what takes long, as PyTorch does:

forks.py serve SOCKET MODULE…         imports the modules, and forks for whoever asks until its stdin ends
forks.py run SOCKET SCRIPT ARGUMENT…  is `python3 SCRIPT ARGUMENT…` in such a copy: environment, folder, files and status
"""

import array
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import types

PATIENCE = 60  # seconds that one that runs a script waits for the server


def connect(path):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
            return connection
        except FileNotFoundError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def run(path, words):
    connection = connect(path)
    asked = json.dumps({"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    files = array.array("i", [0, 1, 2])
    connection.sendmsg([len(asked).to_bytes(4, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    connection.sendall(asked)
    told = connection.recv(4)
    if len(told) < 4:
        sys.exit("the server of scripts is gone")
    status = int.from_bytes(told, "little", signed=True)
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL cannot be asked for
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def receive(connection):
    head, control, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(12))
    if len(head) < 4 or not control:
        return None, ()
    files, wanted, text = array.array("i", control[0][2]), int.from_bytes(head, "little"), b""
    while len(text) < wanted:
        more = connection.recv(wanted - len(text))
        if not more:
            return None, files
        text += more
    return json.loads(text), files


def serve(listening):
    """Returns, in each copy, what it is to run."""
    poll, running = select.poll(), {}  # by the file of a process, and of its connection: (process, file, connection)
    for file in 0, listening.fileno():
        poll.register(file, select.POLLIN)
    while True:
        for file, _ in poll.poll():
            if file == 0:
                for process, _, _ in running.values():
                    os.kill(process, signal.SIGKILL)
                os._exit(0)
            if file == listening.fileno():
                connection, _ = listening.accept()
                asked, files = receive(connection)
                process = os.fork() if asked else None
                if process == 0:
                    listening.close()
                    for _, other, its_connection in set(running.values()):
                        os.close(other)
                        its_connection.close()
                    connection.close()
                    for to, given in enumerate(files):
                        os.dup2(given, to)
                        os.close(given)
                    return asked
                for given in files:
                    os.close(given)
                if process is None:
                    connection.close()
                    continue
                handle = os.pidfd_open(process)
                running[handle] = running[connection.fileno()] = process, handle, connection
                poll.register(handle, select.POLLIN)
                poll.register(connection, select.POLLIN)
            elif file in running:
                process, handle, connection = running[file]
                if file != handle:  # who asked for it is gone
                    poll.unregister(connection)
                    os.kill(process, signal.SIGKILL)
                    continue
                status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                with contextlib.suppress(OSError):
                    connection.sendall(status.to_bytes(4, "little", signed=True))
                with contextlib.suppress(KeyError):
                    poll.unregister(connection)
                poll.unregister(handle)
                del running[handle], running[connection.fileno()]
                os.close(handle)
                connection.close()


if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3:])
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[2] + ".new")
server.listen(64)
os.rename(sys.argv[2] + ".new", sys.argv[2])  # it has its name when it listens
for name in sys.argv[3:]:
    importlib.import_module(name)
asked = serve(server)
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environment"])
sys.argv = asked["words"]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
module = types.ModuleType("__main__")
module.__file__ = sys.argv[0]
sys.modules["__main__"] = module
with open(sys.argv[0], encoding="utf-8") as script:
    code = compile(script.read(), sys.argv[0], "exec")
exec(code, module.__dict__)
