//! No statement scans a table that grows. What steps execute, the world checks in every scenario.

use crate::world::{NOTHING, plan_of};

#[test]
fn no_deletion_scans_what_may_refer_to_the_row() {
    let connection = announce::state::open::in_memory().unwrap();
    let sql = "SELECT t.name, k.\"table\", group_concat(k.\"from\" || ' = 1', ' AND ') FROM sqlite_schema t \
               JOIN pragma_foreign_key_list(t.name) k WHERE t.type = 'table' \
               AND k.\"table\" NOT IN ('source', 'hub', 'mount') GROUP BY t.name, k.id";
    let mut keys = connection.prepare(sql).unwrap();
    let keys = keys.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let mut scans = Vec::new();
    for key in keys.unwrap() {
        let (table, parent, condition): (String, String, String) = key.unwrap();
        let plan = plan_of(
            &connection,
            &format!("SELECT 1 FROM {table} WHERE {condition}"),
        );
        let is_search = plan.iter().all(|line| line.starts_with("SEARCH"));
        if !is_search {
            scans.push(format!("{table} to {parent} by {condition}: {plan:?}"));
        }
    }
    assert_eq!(scans, NOTHING);
}

/// Each of thousands of lists that are written anew after a full disk ends the grace of all sets, of which most have none.
#[test]
fn sets_that_are_not_watched_are_not_passed_over() {
    let connection = announce::state::open::in_memory().unwrap();
    let sql = "UPDATE change_set SET watched_since = NULL WHERE source = ?1 AND watched_since IS NOT NULL \
               AND (?2 OR learned <> 2)";
    let plan = plan_of(&connection, sql);
    assert_eq!(
        plan,
        ["SEARCH change_set USING INDEX change_set_watched (source=?)"]
    );
}
