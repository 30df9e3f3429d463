//! Findings: problems of trees that can be read, reported once they have lasted (R8). They are rows, made anew for the
//! documents that a step touched; but for a wrong `url` of a mount, the most common mistake, which is found when asked for.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::NotADocument;
use resourcesync::uri::{Topic, Uri, has_valid_chars};

use crate::event::Fact;
use crate::finding::Finding;
use crate::observation::{Found, MountId, WhyAbsent};
use crate::plan::{MountPlan, SourcePlan};
use crate::state::{Db, DocId, Result};
use crate::steps::Step;
use crate::steps::documents::{ChangedPart, SeenDocument};
use crate::time::later;

/// Number of findings of one kind that are told each; the others are counted.
pub const EXAMPLES: usize = 3;
/// Time after the first finding of a kind, or a summary, in which those beyond the examples are only counted.
const COUNTED_FOR: Duration = Duration::from_secs(60);
/// Documents that a list names, and of which there is no file, that are findings of their own; the others are counted.
const MAX_WITHOUT_FILE: usize = 100;
/// Findings that are told in one step.
const AT_ONCE: i64 = 1_000;

/// Lists and entries that are looked at for a wrong `url`: enough to know, and quickly done.
const MAX_LISTS: usize = 2_000;
const MAX_MEMBERS: usize = 2_000;

/// The part of a document or set that findings are about: those of one part are replaced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingPart {
    Document = 0,
    Channel = 1,
    /// What the last look at the file found.
    File = 2,
    /// The entries of a Change List.
    Entries = 3,
}

/// The findings of one kind that the operator was told of lately.
#[derive(Debug, Clone, Copy, Default)]
pub struct FindingLogLimit {
    since: Timestamp,
    examples: usize,
    untold: usize,
    is_summed_up: bool,
}

impl FindingLogLimit {
    /// Returns when those that were only counted are told.
    pub fn summary_at(&self) -> Option<Timestamp> {
        (self.untold > 0).then(|| later(self.since, COUNTED_FOR))
    }
}

fn json(finding: &Finding) -> String {
    serde_json::to_string(finding).unwrap_or_default()
}

/// Reads a finding; nothing if it is of a kind that is no more.
pub fn parse(said: &str) -> Option<Finding> {
    serde_json::from_str(said).ok()
}

/// Replaces the findings about one part of a document or set. New ones are told if they last for `broken_after`: a generator
/// that is half done looks wrong for a moment.
pub fn replace(
    step: &Step<'_>,
    position: usize,
    about: &Uri,
    part: FindingPart,
    findings: impl IntoIterator<Item = Finding>,
) -> Result<()> {
    let sql = "SELECT what, said FROM finding WHERE about = ?1 AND part = ?2";
    let mut ended: BTreeMap<String, String> = step.db.all(sql, (about, part as u8))?;
    for finding in findings {
        let said = ended.remove(&json(&finding.identity()));
        if said.is_none_or(|said| said != json(&finding)) {
            note(step, position, about, part, &finding)?;
        }
    }
    for what in ended.into_keys() {
        let sql = "DELETE FROM finding WHERE about = ?1 AND part = ?2 AND what = ?3";
        step.db.run(sql, (about, part as u8, what))?;
    }
    Ok(())
}

/// Notes one finding. A document that is named after it was counted with others is not told again.
fn note(
    step: &Step<'_>,
    position: usize,
    about: &Uri,
    part: FindingPart,
    finding: &Finding,
) -> Result<()> {
    let tell_at = later(step.now, step.plan.sources[position].broken_after);
    let was_counted = matches!(finding, Finding::NoFile { .. })
        && step.db.exists(
            "SELECT 1 FROM finding WHERE about = ?1 AND part = 0 AND kind = 'no_file' AND document IS NULL AND tell_at IS NULL",
            about,
        )?;
    step.db.run(
        "INSERT INTO finding (about, part, what, said, source, kind, document, count, tell_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
         ON CONFLICT (about, part, what) DO UPDATE SET said = excluded.said, count = excluded.count",
        (
            (about, part as u8, json(&finding.identity()), json(finding)),
            (step.live.sources[position].id, finding.kind(), finding.uri_without_document(), finding.finding_count()),
            (!was_counted).then_some(tell_at),
        ),
    )
}

/// Returns the findings about a file that was looked at: it is like a document and none that is announced (R2), or larger
/// than one may be. Nothing if it cannot be read: what was found before stands.
pub fn of_look(about: &Uri, look: &Found) -> Option<Vec<Finding>> {
    let uri = about.clone();
    Some(match look {
        Found::Incomplete(_) => return None,
        Found::Missing => Vec::new(),
        Found::Other { reason, .. } => match reason.clone() {
            NotADocument::Capability(capability) => {
                vec![Finding::ForeignCapability { uri, capability }]
            }
            reason @ (NotADocument::Terms { .. }
            | NotADocument::Namespace {
                has_terms: true, ..
            }) => vec![Finding::ForeignNamespace { uri, reason }],
            _ => Vec::new(),
        },
        Found::Document { parsed, .. } => {
            let relative = parsed.relative.as_ref().map(|loc| Finding::RelativeLoc {
                uri: uri.clone(),
                loc: loc.to_string(),
            });
            let oversize = parsed.oversize;
            let too_large = oversize.map(|oversize| Finding::TooLarge { uri, oversize });
            relative.into_iter().chain(too_large).collect()
        }
    })
}

/// Returns the findings about a touched document of a source, which is in some set or in none.
pub fn of_document(
    step: &mut Step<'_>,
    position: usize,
    document: &SeenDocument,
    is_in_set: bool,
) -> Result<Vec<Finding>> {
    let uri = &document.uri;
    let mut findings = Vec::new();
    if document.is_gone() {
        return Ok(findings);
    }
    let capability = document.version.capability;
    let needs_set = capability != Capability::SourceDescription && !capability.is_manifest();
    if needs_set && !is_in_set {
        let uri = uri.clone();
        findings.push(Finding::Unrouted { uri, capability });
    }
    let no_index =
        "SELECT uri FROM document WHERE id = ?1 AND presence BETWEEN 1 AND 3 AND form = 0";
    if let Some(named) = document.names_index
        && let Some(index) = step.db.first(no_index, named)?
    {
        let uri = uri.clone();
        findings.push(Finding::NoIndex { uri, index });
    }
    if capability == Capability::CapabilityList {
        add_member_findings(step, position, document, &mut findings)?;
    }
    Ok(findings)
}

/// Adds the findings about what a Capability List names.
fn add_member_findings(
    step: &mut Step<'_>,
    position: usize,
    list: &SeenDocument,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let plan = &step.plan.sources[position];
    let sql =
        "SELECT document, said FROM finding WHERE about = ?1 AND part = 0 AND document IS NOT NULL";
    let known: BTreeMap<Uri, String> = step.db.all(sql, &list.uri)?;
    let members = step.db.all::<Vec<(Uri, bool)>>(
        "SELECT d.uri, d.presence BETWEEN 1 AND 3 FROM mention m CROSS JOIN document d ON d.id = m.document WHERE m.list = ?1",
        list.id,
    )?;
    let (mut named, mut more) = (0, 0);
    for (uri, is_there) in members {
        if !has_valid_chars(uri.as_str()) {
            let uri = uri.to_string();
            findings.push(Finding::Unclean { uri });
        }
        if is_there || plan.mount_of(&uri).is_none() {
            continue;
        }
        if named == MAX_WITHOUT_FILE && !step.live.find_each {
            more += 1;
            continue;
        }
        named += 1;
        let before = known.get(&uri).and_then(|said| parse(said));
        if before.is_none() || list.touched == ChangedPart::Version {
            step.explain.extend(plan.path_of(&uri));
        }
        let set = list.uri.clone();
        findings.push(before.unwrap_or(Finding::NoFile { set, uri }));
    }
    if more > 0 {
        let (set, count) = (list.uri.clone(), more);
        findings.push(Finding::MoreWithoutFile { set, count });
    }
    Ok(())
}

/// Takes in what lies at a path that holds no document.
pub fn explained(step: &Step<'_>, position: usize, named: &Uri, cause: &WhyAbsent) -> Result<()> {
    let sets = step.db.all::<Vec<Uri>>(
        "SELECT l.uri FROM document d CROSS JOIN mention m ON m.document = d.id CROSS JOIN document l ON l.id = m.list \
         WHERE d.uri = ?1 AND l.source = ?2 AND l.presence BETWEEN 1 AND 3 AND l.capability = 1 \
         AND EXISTS (SELECT 1 FROM finding f WHERE f.about = l.uri AND f.part = 0 AND f.document = d.uri) ORDER BY l.uri",
        (named, step.live.sources[position].id),
    )?;
    for about in sets {
        let (set, uri, cause) = (about.clone(), named.clone(), cause.clone());
        let found = match cause {
            WhyAbsent::Nothing => Finding::NoFile { set, uri },
            cause => Finding::NoDocument { set, uri, cause },
        };
        let sql =
            "DELETE FROM finding WHERE about = ?1 AND part = 0 AND document = ?2 AND what <> ?3";
        step.db.run(sql, (&about, named, json(&found.identity())))?;
        note(step, position, &about, FindingPart::Document, &found)?;
    }
    Ok(())
}

/// Returns the sets that lack a channel because another set has one of these topics.
pub fn sets_awaiting_freed(
    step: &Step<'_>,
    position: usize,
    free: &BTreeSet<Topic>,
) -> Result<Vec<Uri>> {
    let sql = "SELECT said FROM finding WHERE source = ?1 AND kind = 'shared_topic'";
    let shared: Vec<String> = step.db.all(sql, step.live.sources[position].id)?;
    let sets = shared.iter().filter_map(|said| match parse(said)? {
        Finding::SharedTopic { set, topic } if free.contains(&topic) => Some(set),
        _ => None,
    });
    Ok(sets.collect())
}

/// Tells the operator of findings and broken documents that have lasted: three examples of each kind and the number of the
/// others, and then nothing of that kind for a while.
pub fn report_lasting(step: &mut Step<'_>) -> Result<()> {
    let taken = std::mem::take(&mut step.broken).into_iter();
    let broken = taken.map(|(position, fact)| (position, "broken", 1, fact));
    let mut found: Vec<(usize, &str, usize, Fact)> = broken.collect();
    let mut lasting = step.db.all::<Vec<(i64, Uri, String)>>(
        "UPDATE finding SET tell_at = NULL WHERE (about, part, what) IN (SELECT about, part, what FROM finding \
         WHERE tell_at <= ?1 ORDER BY tell_at LIMIT ?2) RETURNING source, about, said",
        (step.now, AT_ONCE),
    )?;
    lasting.sort();
    let mut wrong = BTreeMap::new();
    for (source, about, said) in lasting {
        let (Some(position), Some(finding)) = (step.live.source_position(source), parse(&said))
        else {
            continue;
        };
        let plan = &step.plan.sources[position];
        if plan.is_acknowledged(&finding) {
            continue;
        }
        if finding.is_wrong_url_symptom() {
            if let btree_map::Entry::Vacant(unknown) = wrong.entry(position) {
                unknown.insert(wrong_urls(step.db, plan)?);
            }
            let mount = plan.mount_of(&about);
            if let Some(cause) = mount.and_then(|mount| wrong[&position].get(&mount.id)) {
                if step.live.sources[position].wrong_urls.insert(cause.clone()) {
                    step.facts.push(Fact::Found(cause.clone()));
                }
                continue;
            }
        }
        let (kind, count) = (finding.kind(), finding.finding_count());
        found.push((position, kind, count, Fact::Found(finding)));
    }
    for (position, kind, count, fact) in found {
        let told = step.live.sources[position].told.entry(kind).or_default();
        // It is new, or its time is over.
        if later(told.since, COUNTED_FOR) <= step.now && told.untold == 0 {
            *told = FindingLogLimit {
                since: step.now,
                ..FindingLogLimit::default()
            };
        }
        if told.examples < EXAMPLES && count == 1 {
            told.examples += 1;
            step.facts.push(fact);
        } else {
            told.untold += count;
        }
    }
    for (source, plan) in step.live.sources.iter_mut().zip(&step.plan.sources) {
        for (kind, told) in &mut source.told {
            // Once, and then when their time is over.
            let is_over = later(told.since, COUNTED_FOR) <= step.now;
            if told.untold == 0 || told.is_summed_up && !is_over {
                continue;
            }
            step.facts.push(Fact::FoundMore {
                source: plan.name.clone(),
                kind,
                count: std::mem::take(&mut told.untold),
            });
            told.is_summed_up = true;
            if is_over {
                (told.since, told.examples) = (step.now, EXAMPLES);
            }
        }
    }
    Ok(())
}

/// Returns the findings about a source. Where the `url` of a mount is wrong, that is returned instead of what follows from
/// it.
pub fn of_source(db: Db<'_>, plan: &SourcePlan) -> Result<BTreeSet<Finding>> {
    let sql = "SELECT f.about, f.said FROM source s CROSS JOIN finding f ON f.source = s.id WHERE s.name = ?1";
    let rows = db.all::<Vec<(Uri, String)>>(sql, &plan.name)?;
    let mut all = BTreeSet::new();
    if rows.is_empty() {
        return Ok(all);
    }
    let wrong = wrong_urls(db, plan)?;
    for (about, said) in rows {
        let mount = plan.mount_of(&about);
        let is_cause_known = mount.is_some_and(|mount| wrong.contains_key(&mount.id));
        all.extend(parse(&said).filter(|it| !(is_cause_known && it.is_wrong_url_symptom())));
    }
    all.extend(wrong.into_values());
    Ok(all)
}

// A wrong `url` of a mount.

/// The numbers of entries of Capability Lists and Source Descriptions that name a document of one mount, by the prefix
/// that they name it by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Entries that name one as the mount is configured.
    pub as_configured: usize,
    /// Entries whose end is the path of one, by what comes before that.
    pub otherwise: BTreeMap<Uri, usize>,
}

/// Returns a finding for each mount of a source whose documents are named otherwise than it says.
pub fn wrong_urls(db: Db<'_>, plan: &SourcePlan) -> Result<BTreeMap<MountId, Finding>> {
    let mut wrong = BTreeMap::new();
    for mount in &plan.mounts {
        let counts = PrefixCounts::of(db, plan, mount)?;
        if let Some((named, count)) = counts.most_common()
            && count > counts.as_configured
        {
            let (url, named) = (mount.prefix.clone(), named.clone());
            wrong.insert(mount.id, Finding::WrongUrl { url, named });
        }
    }
    Ok(wrong)
}

impl PrefixCounts {
    /// Counts the entries of the lists of a mount.
    pub fn of(db: Db<'_>, plan: &SourcePlan, mount: &MountPlan) -> Result<PrefixCounts> {
        let lists = db.all::<Vec<(DocId, Uri)>>(
            "SELECT d.id, d.uri FROM source s CROSS JOIN document d ON d.source = s.id WHERE s.name = ?1 \
             AND d.capability IN (0, 1) AND d.presence BETWEEN 1 AND 3 LIMIT ?2",
            (&plan.name, MAX_LISTS),
        )?;
        let mut naming = PrefixCounts::default();
        let mut members = 0;
        let lists = lists.into_iter();
        for (list, _) in lists.filter(|(_, uri)| uri.is_below(&mount.prefix)) {
            let some = db.all::<Vec<(Uri, bool)>>(
                "SELECT d.uri, d.presence BETWEEN 1 AND 3 FROM mention m CROSS JOIN document d ON d.id = m.document \
                 WHERE m.list = ?1 LIMIT 50",
                list,
            )?;
            members += some.len();
            for (member, is_there) in some {
                if is_there {
                    naming.as_configured += usize::from(member.is_below(&mount.prefix));
                } else if let Some(prefix) = other_prefix(db, mount, &member)? {
                    *naming.otherwise.entry(prefix).or_default() += 1;
                }
            }
            if members >= MAX_MEMBERS {
                break;
            }
        }
        Ok(naming)
    }

    /// Returns the prefix that most entries go by, besides the one that is configured, and their number.
    pub fn most_common(&self) -> Option<(&Uri, usize)> {
        let most = self.otherwise.iter().max_by_key(|(_, count)| **count);
        most.map(|(prefix, count)| (prefix, *count))
    }
}

/// Returns the part of `uri` before the path of a document of the mount, for the longest such path.
fn other_prefix(db: Db<'_>, mount: &MountPlan, uri: &Uri) -> Result<Option<Uri>> {
    let text = uri.as_str();
    let Some(authority) = text.find("://").map(|at| at + 3) else {
        return Ok(None);
    };
    for (at, _) in text[authority..].match_indices('/') {
        let Ok(prefix) = Uri::parse(&text[..=authority + at]) else {
            continue;
        };
        if let Some(configured) = uri.moved(&prefix, &mount.prefix)
            && let Some(document) = db.document_at(&configured)?
            && !document.is_gone()
        {
            return Ok(Some(prefix));
        }
    }
    Ok(None)
}
