#include "remote/source.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/hub_name.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "remote/block_cache.h"
#include "remote/fetch_whole.h"
#include "remote/hub_files.h"
#include "remote/partial_file.h"
#include "remote/remote_file.h"
#include "remote/s3_files.h"
#include "remote/url.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

bool is_web(std::string_view name) {
  return name.starts_with("http://") || name.starts_with("https://");
}
bool is_s3(std::string_view name) { return name.starts_with("s3://"); }
bool is_hub(std::string_view name) { return name.starts_with("hf://"); }

bool exists(std::string_view path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The cache of a directory, one for all files of this process: it warns once.
std::shared_ptr<BlockCache> cache_of(const RemoteOptions& options) {
  static std::mutex mutex;
  static std::map<std::tuple<fs::path, uint64_t, double>, std::shared_ptr<BlockCache>> caches;
  std::lock_guard lock(mutex);
  auto& cache = caches[{options.cache_directory, options.cache_bytes, options.lock_deadline}];
  if (!cache) {
    cache = std::make_shared<BlockCache>(options.cache_directory, options.cache_bytes,
                                         options.lock_deadline);
  }
  return cache;
}

// Where it is, without size and version.
RemoteLocation location_of(const std::string& url, const RemoteOptions& options) {
  if (is_s3(url)) {
    S3Name name = parse_s3_name(url);
    if (name.key.empty() || name.key.ends_with('/'))
      throw UserError(cat("'", url, "' names many files; give s3://BUCKET/KEY of one"));
    return s3_location(name, options.s3);
  }
  RemoteLocation location;
  location.name = public_url(url);
  location.url = url;
  if (same_origin(parse_url(url), parse_url(options.hub.endpoint))) {
    if (!options.hub.token.empty()) location.authorization = cat("Bearer ", options.hub.token);
    location.denied_advice = hub_advice(options.hub);
  }
  return location;
}

// What tells its content from any other; empty where nothing is known.
std::string pinned_identity(const RemoteEntry& entry, const RemoteLocation& location) {
  if (!entry.sha256.empty()) return cat("sha256 ", entry.sha256);
  if (!entry.git_sha1.empty()) return cat("git ", entry.git_sha1);
  if (!entry.revision.empty() || !entry.etag.empty()) {
    return cat(location.url, " revision ", entry.revision, " ETag ", entry.etag, " size ",
               entry.size);
  }
  return "";
}

// Whether what the server has is what was listed, as far as both say.
void check_unchanged(const RemoteEntry& listed, const RemoteProbe& probe) {
  const std::string& etag = probe.location.etag;
  const std::optional<uint64_t> size = probe.answers_parts ? probe.location.size : probe.whole_size;
  const bool other_tag = !listed.etag.empty() && !etag.empty() && listed.etag != etag;
  if (other_tag || (listed.size > 0 && size && *size != listed.size))
    refuse_changed(probe.location.name, listed.size, listed.etag, other_tag ? etag : "");
}

RemoteProbe locate(const RemoteEntry& entry, const RemoteOptions& options) {
  RemoteLocation location = location_of(entry.url, options);
  std::string identity = pinned_identity(entry, location);
  // What a plain web server answers is found out; the hub and S3 answer parts.
  if (identity.empty() || (is_web(entry.url) && entry.revision.empty())) {
    RemoteProbe probe = probe_location(std::move(location), options.http);
    check_unchanged(entry, probe);
    return probe;
  }
  location.identity = std::move(identity);
  location.size = entry.size;
  location.etag = entry.etag;
  return {std::move(location), true, {}};
}

// Copies that are of use to this process alone: it removes them when it ends, and those of another
// that was killed are removed by the next that fetches something.
class OwnCopies {
 public:
  // The directory of this process below `files`.
  static fs::path directory(const fs::path& files) {
    OwnCopies& all = copies();
    std::lock_guard lock(all.mutex_);
    auto [own, is_new] = all.directories_.try_emplace({::getpid(), files});
    if (is_new) own->second = files / cat(kName, kMark, unique_suffix());
    return own->second;
  }
  static void remove_leftovers(const fs::path& files) {
    OwnCopies& all = copies();
    std::lock_guard lock(all.mutex_);
    if (all.cleaned_.insert(files).second) remove_leftovers_of(files / kName, kMark);
  }

 private:
  static constexpr std::string_view kName = "own", kMark = ".copies-";
  static OwnCopies& copies() {
    static OwnCopies copies;
    return copies;
  }
  ~OwnCopies() {
    for (const auto& [whose, directory] : directories_) {
      if (whose.first != ::getpid()) continue;  // of one that this was split off from
      std::error_code ignored;
      fs::remove_all(directory, ignored);
    }
  }

  std::mutex mutex_;
  std::map<std::pair<pid_t, fs::path>, fs::path> directories_;
  std::set<fs::path> cleaned_;
};

fs::path whole_path(const RemoteLocation& location, const RemoteOptions& options) {
  std::string_view address = location.url;
  address = address.substr(0, address.find_first_of("?#"));
  std::string file(address.substr(address.rfind('/') + 1));
  if (!is_plain_name(file) || file.size() > 200) file = "content";
  fs::path files = options.cache_directory / "files";
  OwnCopies::remove_leftovers(files);
  if (!location.lasts) files = OwnCopies::directory(files);
  return files / hex(sha256(location.identity)).substr(0, 32) / file;
}

void fetch_to(const RemoteProbe& probe, const RemoteEntry& entry, const fs::path& path,
              const RemoteOptions& options, TransferProgress* progress) {
  if (probe.answers_parts) {
    fetch_whole(probe.location, entry, path, options, progress);
  } else {
    fetch_in_one_piece(probe, path, options, progress);
  }
}

// What tells a set of files from any other: their paths and contents.
std::string digest_of(const std::vector<RemoteEntry>& entries) {
  std::string text;
  for (const RemoteEntry& entry : entries) {
    text += cat(entry.path, "\n", entry.url.substr(0, entry.url.find('?')), "\n", entry.sha256,
                entry.git_sha1, entry.etag, entry.revision, "\n");
  }
  return hex(sha256(text)).substr(0, 32);
}

// The directory of this machine in which all of them are; nullopt if there is none. UserError for
// a path that leads out of one.
std::optional<fs::path> common_home(const std::vector<RemoteEntry>& entries) {
  std::set<fs::path> homes;
  bool all_here = true;
  for (const RemoteEntry& entry : entries) {
    if (!std::ranges::all_of(split(entry.path, '/'), is_plain_name))
      throw UserError(cat("'", entry.path, "' of '", public_url(entry.url),
                          "' is no path below a directory; rename it"));
    bool is_here = !is_web(entry.url) && !is_s3(entry.url);
    all_here = all_here && is_here && entry.url.ends_with(cat("/", entry.path));
    if (all_here) homes.insert(entry.url.substr(0, entry.url.size() - entry.path.size() - 1));
  }
  if (!all_here || homes.size() != 1) return {};
  return *homes.begin();
}

// Puts a link to `file` at `path`, in the place of any other.
void link_file(const fs::path& file, const fs::path& path) {
  std::error_code error;
  fs::path target = fs::absolute(file);
  if (fs::is_symlink(path, error) && fs::read_symlink(path, error) == target) return;
  make_directories(path.parent_path());
  fs::path aside = path;
  aside += ".tmp-" + unique_suffix();
  fs::create_symlink(target, aside, error);
  if (!error) fs::rename(aside, path, error);
  if (error) throw UserError(cat("cannot create '", path.string(), "': ", error.message()));
}

void require_room(uint64_t bytes, const fs::path& directory) {
  if (bytes == 0) return;
  make_directories(directory);
  std::error_code error;
  fs::space_info space = fs::space(directory, error);
  if (error || space.available >= bytes) return;
  throw UserError(cat("what is still to be fetched has ", format_bytes(static_cast<int64_t>(bytes)),
                      ", and where '", directory.string(), "' is there is room for ",
                      format_bytes(static_cast<int64_t>(space.available)),
                      ": make room, or give a --cache_dir on another disk"));
}

std::vector<RemoteEntry> list_local(const fs::path& path) {
  auto entry_of = [](std::string name, const fs::path& file) {
    RemoteEntry entry;
    entry.path = std::move(name);
    entry.url = file.string();
    entry.size = ReadFile(file).size();
    return entry;
  };
  std::error_code error;
  if (!fs::is_directory(path, error)) return {entry_of(path.filename().string(), path)};
  std::vector<RemoteEntry> entries;
  fs::recursive_directory_iterator it(path, error), end;
  for (; !error && it != end; it.increment(error)) {
    check_interruption();
    std::error_code broken;
    if (it->path().filename().string().starts_with('.')) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(broken)) {
      entries.push_back(entry_of(it->path().lexically_relative(path).generic_string(), it->path()));
    }
  }
  if (error) throw UserError(cat("cannot read '", path.string(), "': ", error.message()));
  if (entries.empty())
    throw UserError(cat("'", path.string(), "' has no file; give a directory with some"));
  std::ranges::sort(entries, {}, &RemoteEntry::path);
  return entries;
}

RemoteEntry entry_of(const std::string& url, const RemoteProbe& probe) {
  RemoteEntry entry;
  entry.url = url;
  std::string path = is_s3(url) ? url : percent_decode(parse_url(url).path, false).value_or(url);
  entry.path = path.substr(path.rfind('/') + 1);
  entry.size = probe.answers_parts ? probe.location.size : probe.whole_size.value_or(0);
  entry.etag = probe.location.etag;
  return entry;
}

std::vector<RemoteEntry> list_web(const std::string& url, const RemoteOptions& options) {
  return {entry_of(url, probe_location(location_of(url, options), options.http))};
}

}  // namespace

bool is_address(std::string_view name) { return is_web(name) || is_s3(name) || is_hub(name); }

bool is_remote_name(std::string_view name) {
  if (is_address(name)) return true;
  return !exists(name) && find_dataset_name(name).has_value();
}

std::vector<RemoteEntry> list_files(std::string_view name, const RemoteOptions& options) {
  if (is_hub(name)) return list_hub_files(parse_hub_reference(name), options);
  if (is_s3(name)) {
    S3Name object = parse_s3_name(name);
    if (object.key.empty() || object.key.ends_with('/')) return list_s3_files(object, options);
  }
  if (is_web(name) || is_s3(name)) return list_web(std::string(name), options);
  if (!exists(name)) {
    if (auto reference = find_dataset_name(name)) {
      TESSERA_INFO(
          cat("'", name, "' is no path of this machine: taken as the data set hf://datasets/",
              reference->repository,
              reference->config.empty() ? "" : cat(", configuration ", reference->config)));
      return list_hub_files(*reference, options);
    }
  }
  return list_local(name);
}

std::optional<RemoteEntry> find_web_file(const std::string& url, const RemoteOptions& options,
                                         bool optional) {
  auto probe = find_location(location_of(url, options), options.http, optional);
  if (!probe) return {};
  return entry_of(url, *probe);
}

std::unique_ptr<ByteSource> open_source(const RemoteEntry& entry, const RemoteOptions& options) {
  if (!is_web(entry.url) && !is_s3(entry.url)) return std::make_unique<ReadFile>(entry.url);
  RemoteProbe probe = locate(entry, options);
  if (probe.answers_parts)
    return std::make_unique<RemoteFile>(std::move(probe.location), options, cache_of(options));
  fs::path path = whole_path(probe.location, options);
  TransferProgress progress("Fetching", entry.size, options.progress_interval);
  fetch_to(probe, entry, path, options, &progress);
  return std::make_unique<ReadFile>(path);
}

std::unique_ptr<ByteSource> open_source(std::string_view name, const RemoteOptions& options) {
  RemoteEntry entry;
  entry.url = name;
  if (is_web(name) || is_s3(name) || !is_remote_name(name)) return open_source(entry, options);
  std::vector<RemoteEntry> entries = list_files(name, options);
  if (entries.size() != 1)
    throw UserError(cat("'", name, "' stands for ", entries.size(), " files, '", entries[0].path,
                        "' the first; give the name of one"));
  return open_source(entries[0], options);
}

fs::path fetch_file(const RemoteEntry& entry, const RemoteOptions& options) {
  if (!is_web(entry.url) && !is_s3(entry.url)) return entry.url;
  RemoteProbe probe = locate(entry, options);
  fs::path path = whole_path(probe.location, options);
  TransferProgress progress("Fetching", entry.size, options.progress_interval);
  fetch_to(probe, entry, path, options, &progress);
  return path;
}

fs::path fetch_directory(const std::vector<RemoteEntry>& entries, const RemoteOptions& options,
                         fs::path directory) {
  if (auto home = common_home(entries)) return *home;
  if (directory.empty()) directory = options.cache_directory / "files" / digest_of(entries);
  uint64_t missing = 0, room = 0;
  std::vector<RemoteProbe> probes;
  std::vector<fs::path> places;
  for (const RemoteEntry& entry : entries) {
    bool is_here = !is_web(entry.url) && !is_s3(entry.url);
    probes.push_back(is_here ? RemoteProbe() : locate(entry, options));
    places.push_back(is_here ? fs::path(entry.url) : whole_path(probes.back().location, options));
    std::error_code error;
    if (fs::exists(places.back(), error)) continue;
    missing += entry.size;
    room += entry.size - std::min(entry.size, begun_bytes(places.back()));
  }
  require_room(room, options.cache_directory);
  TransferProgress progress("Fetching", missing, options.progress_interval);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (is_web(entries[i].url) || is_s3(entries[i].url))
      fetch_to(probes[i], entries[i], places[i], options, &progress);
    link_file(places[i], directory / entries[i].path);
  }
  return directory;
}

}  // namespace tessera
