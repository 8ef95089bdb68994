#pragma once
#include <sys/types.h>

#include <string_view>

namespace tessera {

// How an agent asks for a checkpoint that ends nothing: it wants the newest step to be safe before
// it ends its ranks. To a process of this program that takes signals (take_signals()), by SIGUSR2
// with a value.
void send_save_request(pid_t process);
// Whether there is a request that came since the last call.
bool take_save_request();
void request_save();  // without a signal

// The answers, in lines of the log. The second may be followed by the first.
inline constexpr std::string_view kSavedAsAsked = "Saved as asked";
inline constexpr std::string_view kNotSavedAsAsked = "Not saved as asked";

}  // namespace tessera
