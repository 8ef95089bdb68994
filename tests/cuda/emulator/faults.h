#pragma once

// Faults that a run is told to have by TESSERA_EMULATED_GPU_FAULT, for tests of jobs whose ranks
// are processes: "kill rank=1 launch=200". Actions: kill (SIGKILL), stop (SIGSTOP), fail. Events,
// each counted from 1: init (of a communicator), launch (a kernel that runs), exchange (one that a
// stream has come to), copy (from a device to memory of the host that is not pinned), allocation
// (the one that can fail), abort (of a communicator; one that fails never returns).
namespace tessera::emulated_gpu {

// An event has come. True: it fails. Does not return where the process is to be killed.
bool fault_at(const char* event);

}  // namespace tessera::emulated_gpu
