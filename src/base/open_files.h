#pragma once

namespace tessera {

// Lanes of a stream and the connections of a job want more files at once than the usual 1,024,
// which are so few for the sake of programs that call select(): as many as the hard limit allows.
void raise_open_files_limit();
// As it was before that. Between fork and exec too: system calls alone.
void restore_open_files_limit();

}  // namespace tessera
