#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "remote/options.h"
#include "remote/remote_entry.h"

// What is read, wherever it is. A name is
//   a path of this machine (a file or a directory),
//   http://... or https://...,
//   s3://BUCKET/KEY, or s3://BUCKET/PREFIX/ for all that begins so,
//   hf://datasets/OWNER/NAME[/CONFIG][@REVISION], hf://OWNER/NAME[@REVISION] (a model),
//   or, where nothing on this machine has that path, a data set on the hub: OWNER/NAME that does
//   not end as files do, c4, wikicorpus, openwebtext.
namespace tessera {

// Whether it says that it is elsewhere: http(s)://, s3:// or hf://.
bool is_address(std::string_view name);
// Whether what it names has to be asked for elsewhere (or in the hub's local cache).
bool is_remote_name(std::string_view name);

// The files that it stands for, by path; at least one. Of a directory all regular files in it, in
// depth, without what is hidden. UserError that says what to do.
//
// What a server lists costs requests, of which the hub allows few: one rank lists and tells the
// others.
std::vector<RemoteEntry> list_files(std::string_view name, const RemoteOptions& options);

// The file at an http(s) address; nullopt where its server says that there is none, as
// find_location(). UserError for other failures.
std::optional<RemoteEntry> find_web_file(const std::string& url, const RemoteOptions& options,
                                         bool optional);

// To read parts of. A file on a server is read through the block cache; one whose server does not
// answer parts is fetched whole first, into the cache. UserError; Interrupted.
std::unique_ptr<ByteSource> open_source(const RemoteEntry& entry, const RemoteOptions& options);
// The name must stand for one file.
std::unique_ptr<ByteSource> open_source(std::string_view name, const RemoteOptions& options);

// All of it, as a file of this machine: its own path, or a copy under cache_directory/files, which
// nothing removes, but for what has neither ETag nor date: of that this process has one copy, which
// it removes at its end, or else another one. Its hash has been checked where one is known.
std::filesystem::path fetch_file(const RemoteEntry& entry, const RemoteOptions& options);

// A directory with all of them under their paths: of a model and its tokenizer, say. It is that of
// this machine if they are in one already; else `directory` (empty: one of the cache that is told
// by their contents), with a link to each file once that is whole. Lines of the log say how far it
// is. UserError also where the disk has no room for what is missing.
std::filesystem::path fetch_directory(const std::vector<RemoteEntry>& entries,
                                      const RemoteOptions& options,
                                      std::filesystem::path directory = {});

}  // namespace tessera
