#pragma once
#include <filesystem>

#include "remote/options.h"
#include "remote/range_reader.h"
#include "remote/remote_entry.h"
#include "remote/transfer_progress.h"

namespace tessera {

// Fetches all of it to `path`, whose directory is made: written aside, checked against its size and
// against `entry`'s SHA-256 or git hash where it has one, renamed. So what is at `path` is whole,
// and is left alone if it has that size. A fetch that was cut off is gone on with (PartialFile) as
// long as the content has the same identity; the tag of each answer is held against it. Of the
// threads and processes of a host one fetches, the others say so and wait for it as long as it goes
// on; where it dies, another takes over. With HubSettings::offline nothing of the hub is fetched.
// UserError as RangeReader::read(); also where the content has another hash.
void fetch_whole(const RemoteLocation& location, const RemoteEntry& entry,
                 const std::filesystem::path& path, const RemoteOptions& options,
                 TransferProgress* progress = nullptr);

// The same for a server that does not answer parts and may not tell the size: in one piece, from
// the beginning again where it fails.
void fetch_in_one_piece(const RemoteProbe& probe, const std::filesystem::path& path,
                        const RemoteOptions& options, TransferProgress* progress = nullptr);

}  // namespace tessera
