#include "remote/hub_files.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "remote/hub_listing.h"
#include "remote/url.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxPages = 5000;
constexpr uint64_t kMaxCardBytes = uint64_t{16} << 20;
constexpr std::string_view kConverted = "refs/convert/parquet";

// A repository at one commit.
struct Snapshot {
  std::string commit;
  std::vector<RemoteEntry> entries;
};

class Repository {
 public:
  Repository(const HubReference& reference, const RemoteOptions& options)
      : reference_(reference), options_(options) {}

  std::vector<RemoteEntry> list() const {
    std::optional<Snapshot> snapshot = this->snapshot(revision(), true);
    if (!reference_.is_dataset) {
      std::ranges::sort(snapshot->entries, {}, &RemoteEntry::path);
      return std::move(snapshot->entries);
    }
    std::vector<RemoteEntry> chosen = choose(*snapshot, card_of(*snapshot));
    if (chosen.empty() && reference_.revision.empty()) {
      if (auto converted = this->snapshot(std::string(kConverted), false)) {
        chosen = choose(*converted, {});
        if (!chosen.empty())
          TESSERA_INFO(cat("'", reference_.given,
                           "' is read as the hub has converted it to Parquet (", kConverted, ")"));
      }
    }
    warn_of_partial_conversion(chosen);
    if (chosen.empty()) {
      throw UserError(
          cat("'", reference_.given,
              "' has no data that can be read: no Parquet, Arrow, "
              "JSON or text file in its repository, and none that the hub has converted; "
              "fetch the data in another way and give the path of a local directory"));
    }
    return chosen;
  }

  std::optional<Snapshot> local() const { return local_snapshot(revision()); }

  std::string pinned() const {
    if (!hub().offline) return *commit(revision(), true);
    auto commit = kept_commit(revision());
    if (auto local = local_snapshot(revision())) commit = local->commit;
    if (!commit) refuse_offline(revision());
    return *commit;
  }

  fs::path kept_snapshot_directory() const {
    return kept_directory() / "snapshots" / reference_.revision;
  }

 private:
  const HubSettings& hub() const { return options_.hub; }
  // Whether it may have been meant as one of this machine.
  bool is_path() const { return !reference_.given.starts_with("hf://"); }
  std::string revision() const {
    return reference_.revision.empty() ? "main" : reference_.revision;
  }

  // nullopt where there is no such revision and none is `required`.
  std::optional<Snapshot> snapshot(const std::string& revision, bool required) const {
    if (hub().offline) {
      auto local = local_snapshot(revision);
      if (!local && !reference_.is_dataset) local = kept_snapshot(revision);
      if (!local && required) refuse_offline(revision);
      return local;
    }
    auto commit = this->commit(revision, required);
    if (!commit) return {};
    return snapshot_of(*commit, files_at(*commit));
  }

  Snapshot snapshot_of(const std::string& commit, const std::vector<HubFile>& files) const {
    Snapshot snapshot;
    snapshot.commit = commit;
    for (const HubFile& file : files) snapshot.entries.push_back(entry(file, commit));
    return snapshot;
  }

  std::string api() const {
    return cat(hub().endpoint, reference_.is_dataset ? "/api/datasets/" : "/api/models/",
               reference_.repository);
  }

  std::optional<std::string> commit(const std::string& revision, bool required) const {
    if (is_hub_commit(revision)) return revision;
    HttpRequest request = this->request(cat(api(), "/revision/", percent_encode(revision, false)));
    HttpResponse response;
    try {
      response = send_request(request, options_.http);
    } catch (const UserError& error) {
      auto known = reference_.is_dataset ? std::nullopt : kept_commit(revision);
      if (!known) throw;
      TESSERA_WARN(cat(error.what(), "; '", reference_.given, "' is taken at ", *known,
                       ", as it was when it was fetched"));
      return known;
    }
    if (response.status == 404 && !required) return {};
    if (response.status != 200) refuse_response(request, response, denied_advice(response));
    std::string commit = parse_hub_revision(response.body, public_url(request.url));
    keep(kept_directory() / "refs" / revision, commit);
    return commit;
  }

  // The pages of a list, each behind a zero byte but the first.
  std::vector<HubFile> files_at(const std::string& commit) const {
    if (auto files = kept_files(commit)) return std::move(*files);
    std::string pages;
    std::vector<HubFile> files = tree(cat(api(), "/tree/", commit), pages);
    keep(kept_directory() / "lists" / commit, pages);
    return files;
  }

  std::optional<std::vector<HubFile>> kept_files(const std::string& commit) const {
    fs::path path = kept_directory() / "lists" / commit;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return {};
    try {
      std::string pages = read_file(path);
      std::vector<HubFile> files;
      for (std::string_view page : split(pages, '\0')) parse_hub_tree(page, path.string(), files);
      return files;
    } catch (const UserError&) {
      return {};  // damaged: it is asked for again
    }
  }

  std::optional<std::string> kept_commit(const std::string& revision) const {
    if (is_hub_commit(revision)) return revision;
    fs::path path = kept_directory() / "refs" / revision;
    std::error_code error;
    if (!fs::is_regular_file(path, error) || fs::file_size(path, error) != 40) return {};
    std::string commit = read_file(path);
    return is_hub_commit(commit) ? std::optional(commit) : std::nullopt;
  }

  std::optional<Snapshot> kept_snapshot(const std::string& revision) const {
    auto commit = kept_commit(revision);
    auto files = commit ? kept_files(*commit) : std::nullopt;
    if (!files) return {};
    return snapshot_of(*commit, *files);
  }

  // What cannot be kept is asked for again.
  static void keep(const fs::path& path, const std::string& text) {
    try {
      make_directories(path.parent_path());
      write_file_atomic(path, text);
    } catch (const UserError&) {
    }
  }

  std::string denied_advice(const HttpResponse& response) const {
    const std::string* code = find_header(response.headers, "x-error-code");
    const std::string kind = reference_.is_dataset ? "data set" : "model";
    if (code && *code == "RevisionNotFound")
      return cat("'", reference_.repository, "' has no such branch, tag or commit");
    if (code && *code == "RepoNotFound")
      return cat(is_path() ? "nothing on this machine has that path, and " : "", "the hub has no ",
                 kind, " '", reference_.repository, "' that may be read: ", hub_advice(hub()));
    return hub_advice(hub());
  }

  std::vector<HubFile> tree(const std::string& url, std::string& pages) const {
    std::vector<HubFile> files;
    HttpRequest request = this->request(cat(url, "?recursive=true&expand=false"));
    for (int page = 0;; ++page) {
      check_interruption();
      if (page == kMaxPages)
        throw UserError(cat("'", public_url(url), "' does not end after ", kMaxPages,
                            " pages; check that HF_ENDPOINT is a hub"));
      HttpResponse response = send_request(request, options_.http);
      if (response.status != 200) refuse_response(request, response, denied_advice(response));
      parse_hub_tree(response.body, public_url(url), files);
      if (page > 0) pages.push_back('\0');
      pages += response.body;
      const std::string* link = find_header(response.headers, "link");
      auto next = link ? parse_next_link(*link) : std::nullopt;
      if (!next) return files;
      auto target = resolve_reference(parse_url(response.url), *next);
      // The token goes with every page.
      if (!target || !same_origin(*target, parse_url(hub().endpoint)))
        throw UserError(cat("'", public_url(url),
                            "' goes on at another server; check that "
                            "HF_ENDPOINT is a hub"));
      request.url = target->text;
    }
  }

  HttpRequest request(std::string url) const {
    HttpRequest request;
    request.url = std::move(url);
    if (!hub().token.empty()) request.authorization = cat("Bearer ", hub().token);
    request.advice = reference_.is_dataset
                         ? "HF_HUB_OFFLINE=1 takes what the tools of the hub have fetched before"
                         : cat("where there is none, give the path of a directory, set HF_ENDPOINT "
                               "to a hub that can be reached, or fetch it beforehand into HF_HOME "
                               "(`hf download ",
                               reference_.repository, "`) and set HF_HUB_OFFLINE=1");
    if (is_path()) request.advice += "; nothing on this machine has that path";
    return request;
  }

  RemoteEntry entry(const HubFile& file, const std::string& commit) const {
    RemoteEntry entry{file.path, "", file.size, "", file.sha256, file.git_sha1, commit};
    fs::path fetched = local_directory() / "snapshots" / commit / file.path;
    std::error_code error;
    if (fs::is_regular_file(fetched, error) && fs::file_size(fetched, error) == file.size) {
      entry.url = fetched.string();
    } else {
      entry.url =
          cat(hub().endpoint, reference_.is_dataset ? "/datasets/" : "/", reference_.repository,
              "/resolve/", commit, "/", percent_encode(file.path, true));
    }
    return entry;
  }

  std::string folder() const {
    std::string name(reference_.is_dataset ? "datasets" : "models");
    for (std::string_view part : split(reference_.repository, '/')) name += cat("--", part);
    return name;
  }
  fs::path local_directory() const { return hub().home / "hub" / folder(); }
  fs::path kept_directory() const { return options_.cache_directory / "hub" / folder(); }

  [[noreturn]] void refuse_offline(const std::string& revision) const {
    throw UserError(cat("'", reference_.given, "' at '", revision, "' is not in '",
                        hub().home.string(),
                        "', and HF_HUB_OFFLINE lets nothing be fetched; "
                        "unset it, or fetch it with `hf download`",
                        is_path() ? "; nothing on this machine has that path" : ""));
  }

  // Of what the hub's tools have fetched.
  std::optional<Snapshot> local_snapshot(const std::string& revision) const {
    std::error_code error;
    Snapshot snapshot;
    snapshot.commit = revision;
    fs::path reference = local_directory() / "refs" / revision;
    if (fs::is_regular_file(reference, error) && fs::file_size(reference, error) < 256)
      snapshot.commit = trim(read_file(reference));
    fs::path folder = local_directory() / "snapshots" / snapshot.commit;
    if (!is_plain_name(snapshot.commit) || !fs::is_directory(folder, error)) return {};
    for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      std::error_code broken;
      if (!it->is_regular_file(broken)) continue;
      RemoteEntry entry;
      entry.path = it->path().lexically_relative(folder).generic_string();
      entry.url = it->path().string();
      entry.size = it->file_size(broken);
      entry.revision = snapshot.commit;
      snapshot.entries.push_back(std::move(entry));
    }
    return snapshot;
  }

  // The hub converts the first 5 GB of a large data set, into directories that say so.
  void warn_of_partial_conversion(const std::vector<RemoteEntry>& chosen) const {
    const auto first = std::ranges::find_if(chosen, [](const RemoteEntry& entry) {
      return std::ranges::any_of(split(entry.path, '/'), [](std::string_view part) {
        return part.starts_with(kPartialPrefix);
      });
    });
    if (first == chosen.end()) return;
    TESSERA_WARN_ONCE(cat("'", reference_.given,
                          "': the hub has converted the first part of it only ('", first->path,
                          "'), and the rest is missing here; fetch the data set itself "
                          "in another way and give the path of a local directory"));
  }

  std::string card_text(const RemoteEntry& file, const std::string& commit) const {
    if (!file.url.starts_with(hub().endpoint)) return read_file(file.url);
    const fs::path path = kept_directory() / "cards" / commit;
    std::error_code error;
    if (fs::is_regular_file(path, error) && fs::file_size(path, error) == file.size)
      return read_file(path);
    HttpRequest request = this->request(file.url);
    request.max_body = kMaxCardBytes;
    HttpResponse response = send_request(request, options_.http);
    if (response.status != 200) refuse_response(request, response, denied_advice(response));
    keep(path, response.body);
    return std::move(response.body);
  }

  HubCard card_of(const Snapshot& snapshot) const {
    const auto file = std::ranges::find(snapshot.entries, "README.md", &RemoteEntry::path);
    if (file == snapshot.entries.end() || file->size == 0 || revision() == kConverted) return {};
    HubCard card;
    if (file->size > kMaxCardBytes)
      card.flaw = cat("it has ", file->size, " bytes");
    else
      card = parse_hub_card(card_text(*file, snapshot.commit));
    if (!card.flaw.empty())
      TESSERA_WARN_ONCE(cat("'", reference_.given, "': `configs:` of its README.md is not read (",
                            card.flaw, "): the paths of the files tell configurations and splits"));
    return card;
  }

  std::vector<RemoteEntry> choose(const Snapshot& snapshot, const HubCard& card) const {
    std::vector<HubFile> files;
    std::map<std::string_view, const RemoteEntry*> entries;
    for (const RemoteEntry& entry : snapshot.entries) {
      files.push_back({entry.path, entry.size, "", ""});
      entries[entry.path] = &entry;
    }
    const ChosenFiles data = choose_card_files(card, files, reference_.config, reference_.given);
    for (const std::string& warning : data.warnings) TESSERA_WARN_ONCE(warning);
    std::vector<RemoteEntry> chosen;
    for (const HubFile& file : data.files) {
      chosen.push_back(*entries.at(file.path));
      chosen.back().split = file.split;
    }
    return chosen;
  }

  const HubReference& reference_;
  const RemoteOptions& options_;
};

}  // namespace

std::vector<RemoteEntry> list_hub_files(const HubReference& reference,
                                        const RemoteOptions& options) {
  return Repository(reference, options).list();
}

HubReference pin_hub_reference(const HubReference& reference, const RemoteOptions& options) {
  HubReference pinned = reference;
  pinned.revision = Repository(reference, options).pinned();
  return pinned;
}

std::optional<std::vector<RemoteEntry>> find_fetched_model(const HubReference& reference,
                                                           const RemoteOptions& options) {
  auto snapshot = Repository(reference, options).local();
  if (!snapshot) return {};
  std::ranges::sort(snapshot->entries, {}, &RemoteEntry::path);
  return std::move(snapshot->entries);
}

fs::path model_snapshot(const HubReference& reference, const RemoteOptions& options) {
  return Repository(reference, options).kept_snapshot_directory();
}

std::optional<HubReference> model_of_snapshot(const fs::path& directory) {
  constexpr std::string_view kModels = "models--";
  std::string commit = directory.filename().string();
  std::string folder = directory.parent_path().parent_path().filename().string();
  if (directory.parent_path().filename() != "snapshots" || !folder.starts_with(kModels) ||
      !is_hub_commit(commit))
    return {};
  std::string name = folder.substr(kModels.size());
  if (size_t owner = name.find("--"); owner != name.npos) name.replace(owner, 2, "/");
  HubReference reference;
  reference.repository = name;
  reference.revision = commit;
  reference.given = to_text(reference);
  return reference;
}

std::string hub_advice(const HubSettings& hub) {
  return hub.token.empty()
             ? "check the name; of what is private or gated only who has access may read: accept "
               "the licence on its page, and set HF_TOKEN to a token of the hub (hf auth login "
               "does)"
             : "check the name, that the token in HF_TOKEN is valid and may read it, and that the "
               "licence of what is gated has been accepted on its page";
}

}  // namespace tessera
