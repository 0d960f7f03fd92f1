#include "megalith/Driver/FindModel.h"
#include "megalith/Os/CodePath.h"
#include "megalith/Sema/Model.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <cstdlib>
#include <set>

namespace megalith::driver {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

/// Folders with model files, with colons between them.
static constexpr const char *environment = "MEGALITH_MODELS";

static std::string joined(llvm::StringRef folder, llvm::StringRef name) {
  llvm::SmallString<256> result(folder);
  path::append(result, name);
  return std::string(result);
}

/// The folder `name` of what was installed: its place beside the program, or beside the library. The first one when
/// there is none.
static std::string shareFolder(llvm::StringRef name) {
  const std::string code = os::codePath();
  if (code.empty())
    return "";
  std::string first;
  for (const char *way : {MEGALITH_SHARE_OF_PROGRAM, MEGALITH_SHARE_OF_LIBRARY}) {
    llvm::SmallString<256> folder(path::parent_path(code));
    path::append(folder, way, name);
    path::remove_dots(folder, /*remove_dot_dot=*/true); // codePath() has no links
    if (fs::is_directory(folder))
      return std::string(folder);
    if (first.empty())
      first = std::string(folder);
  }
  return first;
}

std::map<std::string, std::string> shippedPipelines() {
  std::map<std::string, std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(shareFolder("pipelines"), error), end; !error && it != end; it.increment(error))
    if (path::extension(it->path()) == ".yaml")
      found.emplace(path::stem(it->path()).str(), it->path());
  return found;
}

std::vector<Place> placesOf(const std::string &pipeline) {
  std::vector<Place> places;
  if (!pipeline.empty()) {
    const llvm::StringRef folder = path::parent_path(pipeline);
    places.push_back({Place::Pipeline, {folder.str(), joined(folder, "models")}});
  }
  if (std::string share = shareFolder("models"); !share.empty())
    places.push_back({Place::Share, {std::move(share)}});
  const char *given = std::getenv(environment);
  llvm::SmallVector<llvm::StringRef> folders;
  llvm::StringRef(given ? given : "").split(folders, ':', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef folder : folders)
    places.push_back({Place::Environment, {folder.str()}});
  return places;
}

/// "`model_type` "a", `architectures` ["B"]": by what files are told apart.
static std::string familyOf(const ConfigFile &config) {
  std::string text;
  for (const char *key : ast::familyKeys)
    if (const auto value = config.find(key); value && !value->is_null())
      text += fmt::format("{}`{}` `{}`", text.empty() ? "" : ", ", key, jsonShort(*value));
  return text.empty() ? fmt::format("it has neither `{}` nor `{}`", ast::familyKeys[0], ast::familyKeys[1]) : text;
}

/// Whether `model` may be a key of the file's own mapping. Others are told without being parsed: they may be anybody's,
/// and no YAML of ours.
static bool mayBeModel(llvm::StringRef text) {
  bool inMapping = false; // and its keys begin their lines
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    if (!inMapping) {
      const llvm::StringRef content = line.ltrim();
      if (content.empty() || content.starts_with("#") || line.starts_with("---"))
        continue;
      if (line.starts_with("{") || line.starts_with(" "))
        return content.contains("model") || text.contains("model"); // too few to tell them better
      inMapping = true;
    }
    const bool quoted = line.consume_front("'") || line.consume_front("\"");
    if (line.consume_front("model") && (!quoted || line.consume_front("'") || line.consume_front("\"")) &&
        line.ltrim(' ').starts_with(":"))
      return true;
  }
  return false;
}

namespace {

/// One model file that was looked at.
struct Candidate {
  std::string path;
  enum { Fits, OfOthers, Broken } verdict = Fits;
  SourceLoc loc; ///< of its `for:`, of what does not fit there, or of the error
  std::string why;
};

class Search {
public:
  Search(const ConfigFile &config, const Acceptance &acceptance, const ast::Name &model, Diagnostics &diags)
      : config(config), acceptance(acceptance), model(model), diags(diags), sources(diags.sources()), said(sources) {}

  std::optional<FoundModel> run(const std::vector<Place> &places) {
    std::optional<FoundModel> found;
    llvm::ArrayRef<Place> later(places);
    SourceLoc at; // of its `for:`
    while (!later.empty()) {
      const Place &place = later.front();
      later = later.drop_front();
      const std::vector<Candidate> fitting = fittingIn(place);
      if (fitting.empty())
        continue;
      if (fitting.size() == 1)
        found = {fitting[0].path, place.kind, candidates.size()}, at = fitting[0].loc;
      else
        reportSeveral(fitting);
      break;
    }
    if (found) {
      warn();
      for (const Place &place : later)
        warnOfShadowed(place, *found, at);
    } else if (!said.hasErrors()) {
      reportNone();
    }
    diags.adopt(said.messages());
    return found;
  }

private:
  /// Of what lies there, the files that are for the checkpoint.
  std::vector<Candidate> fittingIn(const Place &place) {
    std::vector<Candidate> fitting;
    const size_t before = candidates.size();
    for (const std::string &folder : place.folders)
      for (const std::string &file : filesOf(folder))
        look(file);
    llvm::copy_if(llvm::ArrayRef(candidates).drop_front(before), std::back_inserter(fitting),
                  [](const Candidate &candidate) { return candidate.verdict == Candidate::Fits; });
    return fitting;
  }

  /// Paths of a folder's YAML files: those of the disk, and texts that were given.
  std::vector<std::string> filesOf(const std::string &folder) {
    std::set<std::string> found;
    const std::string onDisk = folder.empty() ? "." : folder;
    std::error_code error;
    for (fs::directory_iterator it(onDisk, error), end; !error && it != end; it.increment(error))
      found.insert(joined(folder, path::filename(it->path())));
    bool given = false;
    for (uint32_t i = 0; i < diags.sources().size(); ++i)
      if (const llvm::StringRef file = diags.sources().name(i); path::parent_path(file) == folder)
        given = found.insert(file.str()).second || given;
    std::string shown = "`" + onDisk + "`";
    if (error && !given)
      shown += error == std::errc::no_such_file_or_directory ? " (which is not there)" : " (" + error.message() + ")";
    folders.push_back(shown);
    std::vector<std::string> files(found.begin(), found.end());
    llvm::erase_if(files, [](const std::string &file) {
      const llvm::StringRef last = path::filename(file), extension = path::extension(last);
      return last.starts_with(".") || (extension != ".yaml" && extension != ".yml");
    });
    return files;
  }

  void look(const std::string &file) {
    fs::file_status status;
    const bool onDisk = !fs::status(file, status);
    if (!diags.sources().find(file) && onDisk) {
      if (status.type() != fs::file_type::regular_file)
        return; // a folder; a pipe would not end
      if (!seen.insert(status.getUniqueID()).second)
        return;
    }
    Diagnostics own(sources);
    std::string reason;
    const auto opened = sources.open(file, reason);
    if (!opened) {
      candidates.push_back({file, Candidate::Broken, {}, fmt::format("cannot read `{}`: {}", file, reason)});
      return;
    }
    if (!mayBeModel(sources.text(*opened)))
      return;
    const auto head = ast::parseAudience(own, *opened);
    if (!head) {
      const Error error = own.messages().first();
      SourceLoc place;
      if (error.line)
        place = {*opened, error.line, error.column, error.length};
      candidates.push_back({file, Candidate::Broken, place, (place ? "" : "`" + file + "`: ") + error.message});
    } else if (!head->name.text.empty()) {
      const std::optional<Misfit> misfit = misfitOf(*head, config, acceptance);
      if (misfit)
        candidates.push_back({file, Candidate::OfOthers, misfit->loc, misfit->text});
      else
        candidates.push_back({file, Candidate::Fits, head->audience.front().key.loc, "it is for this one"});
    }
  }

  /// The one that was meant may be among those that cannot be read.
  void warn() {
    for (const Candidate &candidate : candidates)
      if (candidate.verdict == Candidate::Broken)
        said.report(Diag::UnreadableModelFile, candidate.loc, candidate.why);
  }

  /// What lies in an earlier place goes before the rest, perhaps by accident.
  void warnOfShadowed(const Place &later, const FoundModel &found, SourceLoc at) {
    std::string reason;
    for (const Candidate &shadowed : fittingIn(later)) {
      const auto one = sources.open(found.path, reason), other = sources.open(shadowed.path, reason);
      if (one && other && sources.text(*one) == sources.text(*other)) // a copy
        continue;
      said.report(Diag::ShadowedModelFile, at, found.path, shadowed.path,
                  later.kind == Place::Share ? "that came with megalith" : fmt::format("of `{}`", environment));
      said.note(model.loc, model.loc
                               ? fmt::format("name the one that is meant here, `{}: {{graph: FILE}}`, or take the "
                                             "other one away",
                                             model.text)
                               : "take one of them away");
    }
  }

  void reportSeveral(const std::vector<Candidate> &fitting) {
    said.report(Diag::SeveralModelFiles, model.loc, fitting.size(), config.path(), familyOf(config));
    for (const Candidate &candidate : fitting)
      said.note(candidate.loc, candidate.why);
    said.note(fmt::format("{}, take one of them away, or let their `for:` tell more", adviceToName()));
  }

  void reportNone() {
    said.report(Diag::NoModelFile, model.loc, config.path(), familyOf(config));
    for (const Candidate &candidate : candidates)
      if (candidate.verdict == Candidate::Broken)
        said.note(candidate.loc, candidate.why);
      else // a line each: there may be many
        said.note(fmt::format("`{}`: {}", candidate.path, candidate.why));
    const char *given = std::getenv(environment);
    said.note(fmt::format("looked in {}{}{}", llvm::join(folders, ", "),
                          candidates.empty() ? ", where no model file lies" : "",
                          given && *given ? "" : fmt::format("; `{}`, a list of folders, is not set", environment)));
    said.note(adviceToName() + ", or put one whose `for:` has this checkpoint into one of the folders");
  }

  std::string adviceToName() const {
    return model.loc ? fmt::format("name a model file here, `{}: {{graph: FILE}}`", model.text)
                     : "give a pipeline that names a model file by `graph:`";
  }

  const ConfigFile &config;
  const Acceptance &acceptance;
  const ast::Name &model;
  Diagnostics &diags;
  SourceFiles sources; ///< those of `diags`, and the candidates
  Diagnostics said;
  std::vector<Candidate> candidates;
  std::vector<std::string> folders; ///< that were looked at, for messages
  std::set<fs::UniqueID> seen;      ///< a file is one, whatever links lead to it
};

} // namespace

std::optional<FoundModel> findModel(const std::string &pipeline, const ast::Name &model, const ConfigFile &config,
                                    const Acceptance &acceptance, Diagnostics &diags) {
  return Search(config, acceptance, model, diags).run(placesOf(pipeline));
}

} // namespace megalith::driver
