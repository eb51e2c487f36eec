//! Puts everything into a session.

use std::sync::Arc;

use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::config::ConfigExtension;
use datafusion::execution::{SessionStateBuilder, SessionStateDefaults};
use datafusion::prelude::SessionConfig;
use veil_udfs::VeilOptions;

use crate::Veil;
use crate::carry_types::CarryTypes;
use crate::find_rounds::FindRounds;
use crate::functions::VeilFunctions;
use crate::guard::Guard;
use crate::operators::RefuseOperators;
use crate::read_in_order::ReadInOrder;
use crate::relation_function::RelationFunctions;
use crate::rounds_node::VeilQueryPlanner;
use crate::tables::VeilTableFactory;

/// Prepares a session's settings for encrypted columns.
pub trait VeilSessionConfig {
    /// Keeps the metadata of Parquet fields, which DataFusion otherwise drops and with it the type `veil.cell`; reads
    /// cells as `Binary`, which computes faster than `BinaryView`; and adds the settings `veil.*`.
    #[must_use]
    fn with_veil(self) -> Self;
}

impl VeilSessionConfig for SessionConfig {
    fn with_veil(mut self) -> Self {
        let options = self.options_mut();
        options.execution.parquet.skip_metadata = false;
        options.execution.parquet.schema_force_view_types = false;
        if options.extensions.get::<VeilOptions>().is_none() {
            options.extensions.insert(VeilOptions::default());
        }
        debug_assert_eq!(VeilOptions::PREFIX, "veil");
        self
    }
}

/// Adds Veilfusion to a session: functions, rules, operators, tables and settings.
pub trait VeilSessionState {
    /// With DataFusion's default features, and ours. A query planner that the builder has already is kept: give it a
    /// [`RoundsPlanner`](crate::RoundsPlanner).
    #[must_use]
    fn with_veil(self, veil: &Veil) -> Self;
}

impl VeilSessionState for SessionStateBuilder {
    fn with_veil(self, veil: &Veil) -> Self {
        let mut builder = self.with_default_features();
        let config = builder.config().take().unwrap_or_default().with_veil();
        let mut rules = builder.analyzer().take().unwrap_or_default().rules;
        rules.insert(0, Arc::new(CarryTypes));
        rules.insert(1, Arc::new(Guard));
        rules.push(Arc::new(CarryTypes));
        rules.push(Arc::new(FindRounds));
        builder.scalar_functions().get_or_insert_default().extend(veil_udfs::scalar_functions(veil.context()));
        builder.aggregate_functions().get_or_insert_default().extend(veil_udfs::aggregate_functions());
        // Before DataFusion's own, which take what they can.
        builder.expr_planners().get_or_insert_default().insert(0, Arc::new(RefuseOperators));
        let factories = builder.table_factories().take().unwrap_or_else(SessionStateDefaults::default_table_factories);
        let factories = factories.into_iter().map(|(format, factory)| {
            let factory = match format.as_str() {
                "PARQUET" | "ARROW" => Arc::new(VeilTableFactory::new(factory, veil.context().clone())),
                _ => return (format, factory),
            };
            (format, factory as _)
        });
        let factories = factories.collect();
        let summaries = [
            veil.search_log().table_function(),
            veil.anonymisation_log().table_function(),
            veil.assessment_log().table_function(),
        ];
        for function in [VeilFunctions::table_function(veil)].into_iter().chain(summaries) {
            builder.table_functions().get_or_insert_default().insert(function.name().to_owned(), function);
        }
        // Relation functions look up tables by themselves, in the catalogs that the session will have.
        let catalogs = builder.catalog_list().get_or_insert_with(|| Arc::new(MemoryCatalogProviderList::new())).clone();
        let relations = builder.relation_planners().get_or_insert_default();
        relations.push(Arc::new(RelationFunctions::new(catalogs)));
        builder.query_planner().get_or_insert_with(|| Arc::new(VeilQueryPlanner::new(veil.clone())));
        builder
            .with_config(config)
            .with_analyzer_rules(rules)
            .with_physical_optimizer_rule(Arc::new(ReadInOrder))
            .with_table_factories(factories)
    }
}
