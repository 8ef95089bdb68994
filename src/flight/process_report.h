#pragma once
#include <filesystem>
#include <string_view>

namespace tessera {

class FlightRecorder;

// Reports of this process, in the file report_path() of its flight recorder, one behind the other:
// why, in which op and which exchanges it is, and the native stack of every thread that takes part
// (base/thread_stacks.h).

// From here on reports are written beside the ring of `recorder`, and so is one at a fatal signal
// (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), whose default action then follows: not where a
// sanitizer has handlers of its own. SIGUSR2 asks for one, too. Null: no more; returns when the one
// that is being written is done.
void report_to(FlightRecorder* recorder);

// Writes the report of this process now, and goes on. Any thread; one that is being written already
// is waited for. `reason` is its first line: "rank 3 did not answer within 300 s". Returns the
// file, or "" where there is no recorder or it cannot be written.
std::filesystem::path write_process_report(std::string_view reason) noexcept;

}  // namespace tessera
