#pragma once
#include <filesystem>

#include "remote/options.h"
#include "remote/range_reader.h"
#include "remote/remote_entry.h"

namespace tessera {

// Fetches all of it to `path`, whose directory is made: written aside, checked against its size and
// against `entry`'s SHA-256 or git hash where it has one, renamed. So what is at `path` is whole,
// and is left alone if it has that size. Of the threads and processes of a host one fetches, the
// others wait for it; where it dies, another takes over. UserError as RangeReader::read(); also
// where the content has another hash.
void fetch_whole(const RemoteLocation& location, const RemoteEntry& entry,
                 const std::filesystem::path& path, const RemoteOptions& options);

// The same for a server that does not answer parts and may not tell the size: in one piece, from
// the beginning again where it fails.
void fetch_in_one_piece(const RemoteProbe& probe, const std::filesystem::path& path,
                        const RemoteOptions& options);

}  // namespace tessera
