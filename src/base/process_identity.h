#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

// Telling processes apart that share a file system: on other hosts, in other containers of this one
// (which may have the same process numbers), and before and after a restart of the machine.

// 128 random bits as 32 lower-case hexadecimal digits.
std::string random_id();

std::string host_name();

// One value from the start of this machine to its next; "" where the system does not tell.
std::string boot_id();

// What a temporary name ends in, unlike any other that is made anywhere:
// "PID.START.PLACE.RANDOM", with the time at which the process started, in ticks since boot, and a
// hash of boot and process namespace.
std::string unique_suffix();

// Whether the text has that form, or is a bare process number.
bool is_unique_suffix(std::string_view text);

// Whether the process that made the suffix has certainly ended: it ran in this namespace since this
// boot, and is not there now. Of a bare number: whether there is no such process here. One that has
// ended and whose end nobody has asked for counts as ended.
bool maker_has_ended(std::string_view suffix);

// Removes `PATH.tmp-SUFFIX`, or with another `mark`, of processes that have ended, files and
// directories: of some that were killed while they wrote PATH. Where that cannot be done, nothing
// is said.
void remove_leftovers_of(const std::filesystem::path& path, std::string_view mark = ".tmp-");

// What is known of that process here; of a bare number nothing but that it has ended.
enum class MakerState { kUnknown, kRunning, kStopped, kEnded };
MakerState maker_state(std::string_view suffix);

// Whether a signal ends the process, of which all its threads have yet to hear.
bool is_being_killed(pid_t process);

// Whether this process made it.
bool made_here(std::string_view suffix);

}  // namespace tessera
