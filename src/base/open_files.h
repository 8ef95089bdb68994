#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Lanes of a stream and the connections of a job want more files at once than the usual 1,024,
// which are so few for the sake of programs that call select(): as many as the hard limit allows.
void raise_open_files_limit();
// As it was before that. Between fork and exec too: system calls alone.
void restore_open_files_limit();

// What an errno says and, of EMFILE and ENFILE, which limit was reached and who can raise it.
std::string open_error_text(int error);
// UserError "to WORK takes ..." where this process may not have so many open beside those that are;
// its advice is of twice as many.
void require_open_files(uint64_t more, std::string_view work);

}  // namespace tessera
